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
from transformers.models.mistral.configuration_mistral import MistralConfig

class MistralRMSNorm(_RMSNorm): ...
class MistralMLP(_MLP): ...
class MistralRotaryEmbedding(_RotaryEmbedding): ...
class MistralAttention(_Attention): ...

class MistralDecoderLayer(_DecoderLayer):
    input_layernorm: MistralRMSNorm
    mlp: MistralMLP
    post_attention_layernorm: MistralRMSNorm
    self_attn: MistralAttention

class MistralModel(_DecoderModel):
    config: MistralConfig
    layers: Sequence[MistralDecoderLayer]
    norm: MistralRMSNorm
    rotary_emb: MistralRotaryEmbedding

    def __init__(self, config: MistralConfig) -> None: ...

class MistralForCausalLM(_ForCausalLM):
    config: MistralConfig
    model: MistralModel

    def __init__(self, config: MistralConfig) -> None: ...
