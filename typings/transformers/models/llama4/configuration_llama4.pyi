from transformers.configuration_utils import PreTrainedConfig

class Llama4TextConfig(PreTrainedConfig):
    max_position_embeddings: int

    def __init__(
        self,
        *,
        attention_chunk_size: int | None = ...,
        head_dim: int = ...,
        hidden_size: int = ...,
        intermediate_size: int = ...,
        intermediate_size_mlp: int = ...,
        layer_types: list[str] | None = None,
        max_position_embeddings: int = ...,
        num_attention_heads: int = ...,
        num_experts_per_tok: int = ...,
        num_hidden_layers: int = ...,
        num_key_value_heads: int | None = ...,
        num_local_experts: int = ...,
        vocab_size: int = ...,
    ) -> None: ...
