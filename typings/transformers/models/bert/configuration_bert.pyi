from transformers.configuration_utils import PreTrainedConfig

class BertConfig(PreTrainedConfig):
    hidden_size: int
    is_decoder: bool
    max_position_embeddings: int
    num_hidden_layers: int

    def __init__(
        self,
        *,
        architectures: list[str] | None = None,
        hidden_size: int = 768,
        intermediate_size: int = 3072,
        is_decoder: bool = False,
        max_position_embeddings: int = 512,
        num_attention_heads: int = 12,
        num_hidden_layers: int = 12,
        pad_token_id: int | None = 0,
        type_vocab_size: int = 2,
        vocab_size: int = ...,
    ) -> None: ...
