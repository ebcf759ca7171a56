from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.models._encoder_decoder import (
    _CrossAttention,
    _CrossDecoder,
    _CrossDecoderLayer,
    _ForConditionalGeneration,
)
from transformers.models.whisper.configuration_whisper import WhisperConfig

class WhisperPositionalEmbedding(nn.Embedding): ...
class WhisperAttention(_CrossAttention): ...

class WhisperDecoderLayer(_CrossDecoderLayer):
    self_attn: WhisperAttention
    encoder_attn: WhisperAttention

class WhisperEncoder(nn.Module):
    conv1: nn.Conv1d
    conv2: nn.Conv1d

    def __call__(
        self, input_features: Tensor, attention_mask: Tensor | None = None, **kwargs: object
    ) -> BaseModelOutput: ...

class WhisperDecoder(_CrossDecoder):
    embed_positions: WhisperPositionalEmbedding
    layer_norm: nn.LayerNorm

class WhisperModel(nn.Module):
    encoder: WhisperEncoder
    decoder: WhisperDecoder

class WhisperForConditionalGeneration(_ForConditionalGeneration):
    config: WhisperConfig
    model: WhisperModel
    proj_out: nn.Linear

    def __init__(self, config: WhisperConfig) -> None: ...
    def __call__(
        self,
        input_features: Tensor | None = None,
        *,
        decoder_input_ids: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: object,
    ) -> Seq2SeqLMOutput: ...
