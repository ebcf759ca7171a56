from torch import Tensor
from transformers.modeling_utils import PreTrainedModel
from transformers.models._latent import _LatentAttention
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config

def apply_rotary_pos_emb(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]: ...
def apply_rotary_pos_emb_interleave(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]: ...

class DeepseekV3Attention(_LatentAttention):
    config: DeepseekV3Config

class DeepseekV3ForCausalLM(PreTrainedModel):
    config: DeepseekV3Config

    def __init__(self, config: DeepseekV3Config) -> None: ...
