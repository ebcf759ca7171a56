from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel
from transformers.models.minimax.configuration_minimax import MiniMaxConfig

class MiniMaxRMSNorm(nn.Module):
    weight: nn.Parameter
    variance_epsilon: float

    def __call__(self, hidden_states: Tensor) -> Tensor: ...

class MiniMaxLightningAttention(nn.Module):
    act_fn: nn.Module
    head_dim: int
    norm: MiniMaxRMSNorm
    num_attention_heads: int
    out_proj: nn.Linear
    output_gate: nn.Linear
    qkv_proj: nn.Linear
    slope_rate: Tensor

class MiniMaxForCausalLM(PreTrainedModel):
    config: MiniMaxConfig

    def __init__(self, config: MiniMaxConfig) -> None: ...
