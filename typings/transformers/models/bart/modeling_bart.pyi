from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.models._encoder_decoder import (
    _CrossAttention,
    _CrossDecoder,
    _CrossDecoderLayer,
    _ForConditionalGeneration,
)
from transformers.models.bart.configuration_bart import BartConfig

class BartLearnedPositionalEmbedding(nn.Embedding):
    offset: int

class BartAttention(_CrossAttention): ...

class BartDecoderLayer(_CrossDecoderLayer):
    self_attn: BartAttention
    encoder_attn: BartAttention

class BartEncoder(nn.Module):
    def __call__(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, **kwargs: object
    ) -> BaseModelOutput: ...

class BartDecoder(_CrossDecoder):
    embed_positions: BartLearnedPositionalEmbedding
    layernorm_embedding: nn.LayerNorm

class BartModel(nn.Module):
    encoder: BartEncoder
    decoder: BartDecoder

class BartForConditionalGeneration(_ForConditionalGeneration):
    config: BartConfig
    model: BartModel
    lm_head: nn.Linear
    final_logits_bias: Tensor

    def __init__(self, config: BartConfig) -> None: ...
    def __call__(
        self,
        input_ids: Tensor | None = None,
        *,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: object,
    ) -> Seq2SeqLMOutput: ...
