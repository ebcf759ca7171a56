from transformers.configuration_utils import PreTrainedConfig

class Gemma3nTextConfig(PreTrainedConfig):
    layer_types: list[str]
    max_position_embeddings: int
    num_kv_shared_layers: int

    def __init__(
        self,
        *,
        activation_sparsity_pattern: float | list[float] | None = None,
        altup_num_inputs: int = ...,
        head_dim: int = ...,
        hidden_size: int = ...,
        hidden_size_per_layer_input: int = ...,
        intermediate_size: int | list[int] = ...,
        laurel_rank: int = ...,
        layer_types: list[str] | None = None,
        max_position_embeddings: int = ...,
        num_attention_heads: int = ...,
        num_hidden_layers: int = ...,
        num_key_value_heads: int = ...,
        num_kv_shared_layers: int = ...,
        sliding_window: int = ...,
        vocab_size: int = ...,
        vocab_size_per_layer_input: int = ...,
    ) -> None: ...
