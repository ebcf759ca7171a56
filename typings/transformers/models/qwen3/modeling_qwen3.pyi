from collections.abc import Sequence

from transformers.models._decoder import (
    _MLP,
    _Attention,
    _DecoderLayer,
    _DecoderModel,
    _ForCausalLM,
    _RMSNorm,
    _RotaryEmbedding,
)
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config

class Qwen3RMSNorm(_RMSNorm): ...
class Qwen3MLP(_MLP): ...
class Qwen3RotaryEmbedding(_RotaryEmbedding): ...

class Qwen3Attention(_Attention):
    q_norm: Qwen3RMSNorm
    k_norm: Qwen3RMSNorm
    sliding_window: int | None

class Qwen3DecoderLayer(_DecoderLayer):
    input_layernorm: Qwen3RMSNorm
    mlp: Qwen3MLP
    post_attention_layernorm: Qwen3RMSNorm
    self_attn: Qwen3Attention

class Qwen3Model(_DecoderModel):
    config: Qwen3Config
    layers: Sequence[Qwen3DecoderLayer]
    norm: Qwen3RMSNorm
    rotary_emb: Qwen3RotaryEmbedding

    def __init__(self, config: Qwen3Config) -> None: ...

class Qwen3ForCausalLM(_ForCausalLM):
    config: Qwen3Config
    model: Qwen3Model

    def __init__(self, config: Qwen3Config) -> None: ...
