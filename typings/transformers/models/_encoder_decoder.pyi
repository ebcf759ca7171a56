from collections.abc import Sequence

from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.generation.configuration_utils import GenerationConfig
from transformers.models._encoder import _Encoder

# Stubs only: what the classes of models whose decoder attends over an encoder's output have in common.

class _CrossAttention(nn.Module):
    embed_dim: int
    head_dim: int
    layer_idx: int | None
    num_heads: int
    scaling: float
    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    out_proj: nn.Linear

    def __call__(
        self,
        hidden_states: Tensor,
        key_value_states: Tensor | None = None,
        cache: Cache | None = None,
        attention_mask: Tensor | None = None,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor | None]: ...

class _CrossDecoderLayer(nn.Module):
    def __call__(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = True,
        **kwargs: object,
    ) -> Tensor: ...

class _CrossDecoder(nn.Module):
    embed_tokens: nn.Embedding
    # A ModuleList at run time: it has a length, items, slices and an iterator, and neither index() nor count().
    layers: Sequence[_CrossDecoderLayer]

class _ForConditionalGeneration(_Encoder):
    generation_config: GenerationConfig | None
