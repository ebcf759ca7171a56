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
from transformers.models.qwen2.configuration_qwen2 import Qwen2Config

class Qwen2RMSNorm(_RMSNorm): ...
class Qwen2MLP(_MLP): ...
class Qwen2RotaryEmbedding(_RotaryEmbedding): ...

class Qwen2Attention(_Attention):
    sliding_window: int | None

class Qwen2DecoderLayer(_DecoderLayer):
    input_layernorm: Qwen2RMSNorm
    mlp: Qwen2MLP
    post_attention_layernorm: Qwen2RMSNorm
    self_attn: Qwen2Attention

class Qwen2Model(_DecoderModel):
    config: Qwen2Config
    layers: Sequence[Qwen2DecoderLayer]
    norm: Qwen2RMSNorm
    rotary_emb: Qwen2RotaryEmbedding

    def __init__(self, config: Qwen2Config) -> None: ...

class Qwen2ForCausalLM(_ForCausalLM):
    config: Qwen2Config
    model: Qwen2Model

    def __init__(self, config: Qwen2Config) -> None: ...
