from transformers.configuration_utils import PreTrainedConfig

class BartConfig(PreTrainedConfig):
    d_model: int
    decoder_attention_heads: int
    decoder_layers: int
    decoder_start_token_id: int | None
    max_position_embeddings: int

    def __init__(
        self,
        *,
        architectures: list[str] | None = None,
        bos_token_id: int | None = 0,
        d_model: int = 1024,
        decoder_attention_heads: int = 16,
        decoder_ffn_dim: int = 4096,
        decoder_layers: int = 12,
        decoder_start_token_id: int | None = 2,
        encoder_attention_heads: int = 16,
        encoder_ffn_dim: int = 4096,
        encoder_layers: int = 12,
        eos_token_id: int | list[int] | None = 2,
        max_position_embeddings: int = 1024,
        pad_token_id: int | None = 1,
        scale_embedding: bool = False,
        vocab_size: int = 50265,
    ) -> None: ...
