from torch import Tensor
from transformers.modeling_utils import PreTrainedModel
from transformers.models._latent import _LatentAttention
from transformers.models.deepseek_v2.configuration_deepseek_v2 import DeepseekV2Config

def apply_rotary_emb(xq: Tensor, xk: Tensor, freqs_cis: Tensor) -> tuple[Tensor, Tensor]: ...

class DeepseekV2Attention(_LatentAttention):
    config: DeepseekV2Config

class DeepseekV2ForCausalLM(PreTrainedModel):
    config: DeepseekV2Config

    def __init__(self, config: DeepseekV2Config) -> None: ...
