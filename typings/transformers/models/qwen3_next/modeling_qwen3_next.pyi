from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig

class Qwen3NextRMSNormGated(nn.Module):
    weight: nn.Parameter

    def __call__(self, hidden_states: Tensor, gate: Tensor) -> Tensor: ...

class Qwen3NextGatedDeltaNet(nn.Module):
    A_log: nn.Parameter
    conv1d: nn.Conv1d
    conv_kernel_size: int
    dt_bias: nn.Parameter
    head_k_dim: int
    head_v_dim: int
    hidden_size: int
    in_proj_ba: nn.Linear
    in_proj_qkvz: nn.Linear
    norm: Qwen3NextRMSNormGated
    num_k_heads: int
    num_v_heads: int
    out_proj: nn.Linear

class Qwen3NextForCausalLM(PreTrainedModel):
    config: Qwen3NextConfig

    def __init__(self, config: Qwen3NextConfig) -> None: ...
