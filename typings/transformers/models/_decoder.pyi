from collections.abc import Sequence

from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.modeling_rope_utils import RopeParameters
from transformers.modeling_utils import PreTrainedModel

# Stubs only: what the classes of the four families of attention have in common. At run time they share no base.

# `head_dim`, `sliding_window`, `layer_types` and `attention_bias` are missing from some of them.
class _DecoderConfig(PreTrainedConfig):
    hidden_act: str
    intermediate_size: int
    max_position_embeddings: int
    num_attention_heads: int
    num_key_value_heads: int
    rms_norm_eps: float
    rope_parameters: RopeParameters

class _RMSNorm(nn.Module):
    weight: nn.Parameter
    variance_epsilon: float

    def __init__(self, hidden_size: int, eps: float = 1e-6) -> None: ...
    def __call__(self, hidden_states: Tensor) -> Tensor: ...

class _MLP(nn.Module):
    gate_proj: nn.Linear
    up_proj: nn.Linear
    down_proj: nn.Linear
    act_fn: nn.Module

    def __call__(self, x: Tensor) -> Tensor: ...

class _RotaryEmbedding(nn.Module):
    attention_scaling: float
    inv_freq: Tensor
    rope_type: str

    def __call__(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]: ...

class _Attention(nn.Module):
    head_dim: int
    is_causal: bool
    layer_idx: int
    num_key_value_groups: int
    scaling: float
    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    o_proj: nn.Linear

    def __call__(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None,
        cache: Cache | None = None,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor | None]: ...

class _DecoderLayer(nn.Module):
    input_layernorm: _RMSNorm
    mlp: _MLP
    post_attention_layernorm: _RMSNorm
    self_attn: _Attention

    def __call__(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = False,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **kwargs: object,
    ) -> Tensor: ...

class _DecoderModel(nn.Module):
    config: _DecoderConfig
    embed_tokens: nn.Embedding
    # A ModuleList at run time: it has a length, items, slices and an iterator, and neither index() nor count().
    layers: Sequence[_DecoderLayer]
    norm: _RMSNorm
    rotary_emb: _RotaryEmbedding

    def __call__(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: object,
    ) -> BaseModelOutputWithPast: ...

class _ForCausalLM(PreTrainedModel):
    model: _DecoderModel
