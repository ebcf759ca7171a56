from transformers.configuration_utils import PreTrainedConfig

class Gemma2Config(PreTrainedConfig):
    max_position_embeddings: int

    def __init__(
        self,
        *,
        attn_logit_softcapping: float | None = ...,
        final_logit_softcapping: float | None = ...,
        head_dim: int = ...,
        hidden_size: int = ...,
        intermediate_size: int = ...,
        layer_types: list[str] | None = None,
        max_position_embeddings: int = ...,
        num_attention_heads: int = ...,
        num_hidden_layers: int = ...,
        num_key_value_heads: int | None = ...,
        query_pre_attn_scalar: int = ...,
        sliding_window: int | None = ...,
        vocab_size: int = ...,
    ) -> None: ...
