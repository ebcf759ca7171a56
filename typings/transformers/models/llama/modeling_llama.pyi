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
from transformers.models.llama.configuration_llama import LlamaConfig

class LlamaRMSNorm(_RMSNorm): ...
class LlamaMLP(_MLP): ...
class LlamaRotaryEmbedding(_RotaryEmbedding): ...
class LlamaAttention(_Attention): ...

class LlamaDecoderLayer(_DecoderLayer):
    input_layernorm: LlamaRMSNorm
    mlp: LlamaMLP
    post_attention_layernorm: LlamaRMSNorm
    self_attn: LlamaAttention

class LlamaModel(_DecoderModel):
    config: LlamaConfig
    layers: Sequence[LlamaDecoderLayer]
    norm: LlamaRMSNorm
    rotary_emb: LlamaRotaryEmbedding

    def __init__(self, config: LlamaConfig) -> None: ...

class LlamaForCausalLM(_ForCausalLM):
    config: LlamaConfig
    model: LlamaModel

    def __init__(self, config: LlamaConfig) -> None: ...
