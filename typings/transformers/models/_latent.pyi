from torch import Tensor, nn
from transformers.models._decoder import _RMSNorm

# Stubs only: what the attention of DeepSeek's families has in common. At run time they share no base.

class _LatentAttention(nn.Module):
    kv_a_layernorm: _RMSNorm
    kv_a_proj_with_mqa: nn.Linear
    kv_b_proj: nn.Linear
    kv_lora_rank: int
    layer_idx: int
    num_heads: int
    o_proj: nn.Linear
    q_a_layernorm: _RMSNorm | None
    q_a_proj: nn.Linear | None
    q_b_proj: nn.Linear | None
    q_proj: nn.Linear | None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    scaling: float
    v_head_dim: int

    def __call__(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: object
    ) -> tuple[Tensor, Tensor | None]: ...
