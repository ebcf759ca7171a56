from transformers.configuration_utils import PreTrainedConfig

class WhisperConfig(PreTrainedConfig):
    d_model: int
    decoder_attention_heads: int
    decoder_layers: int
    decoder_start_token_id: int
    max_source_positions: int
    max_target_positions: int
    num_mel_bins: int

    def __init__(
        self,
        *,
        architectures: list[str] | None = None,
        begin_suppress_tokens: list[int] | None = None,
        bos_token_id: int | None = 50256,
        d_model: int = 384,
        decoder_attention_heads: int = 6,
        decoder_ffn_dim: int = 1536,
        decoder_layers: int = 4,
        decoder_start_token_id: int = 50257,
        encoder_attention_heads: int = 6,
        encoder_ffn_dim: int = 1536,
        encoder_layers: int = 4,
        eos_token_id: int | list[int] | None = 50256,
        max_source_positions: int = 1500,
        max_target_positions: int = 448,
        num_mel_bins: int = 80,
        pad_token_id: int | None = 50256,
        vocab_size: int = 51865,
    ) -> None: ...
