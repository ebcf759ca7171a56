from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel
from transformers.models._decoder import _RMSNorm
from transformers.models.deepseek_v32.configuration_deepseek_v32 import DeepseekV32Config

def apply_rotary_pos_emb(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
) -> tuple[Tensor, Tensor]: ...
def apply_rotary_pos_emb_interleave(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]: ...

class DeepseekV32Indexer(nn.Module):
    head_dim: int
    hidden_size: int
    index_topk: int
    k_norm: nn.LayerNorm
    n_heads: int
    q_lora_rank: int
    qk_rope_head_dim: int
    softmax_scale: float
    weights_proj: nn.Linear
    wk: nn.Linear
    wq_b: nn.Linear

class DeepseekV32Attention(nn.Module):
    config: DeepseekV32Config
    indexer: DeepseekV32Indexer
    kv_a_layernorm: _RMSNorm
    kv_a_proj_with_mqa: nn.Linear
    kv_b_proj: nn.Linear
    kv_lora_rank: int
    layer_idx: int
    num_heads: int
    o_proj: nn.Linear
    q_a_layernorm: _RMSNorm
    q_a_proj: nn.Linear
    q_b_proj: nn.Linear
    q_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    scaling: float
    v_head_dim: int

    def __call__(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: object
    ) -> tuple[Tensor, Tensor | None]: ...

class DeepseekV32ForCausalLM(PreTrainedModel):
    config: DeepseekV32Config

    def __init__(self, config: DeepseekV32Config) -> None: ...
