from torch import nn
from transformers.modeling_utils import PreTrainedModel
from transformers.models.lfm2.configuration_lfm2 import Lfm2Config

class Lfm2ShortConv(nn.Module):
    conv: nn.Conv1d
    conv_kernel_size: int
    in_proj: nn.Linear
    out_proj: nn.Linear

class Lfm2ForCausalLM(PreTrainedModel):
    config: Lfm2Config

    def __init__(self, config: Lfm2Config) -> None: ...
