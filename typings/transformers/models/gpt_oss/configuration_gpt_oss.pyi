from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_rope_utils import RopeParameters

class GptOssConfig(PreTrainedConfig):
    max_position_embeddings: int

    def __init__(
        self,
        *,
        head_dim: int = ...,
        hidden_size: int = ...,
        intermediate_size: int = ...,
        layer_types: list[str] | None = None,
        max_position_embeddings: int = ...,
        num_attention_heads: int = ...,
        num_experts_per_tok: int = ...,
        num_hidden_layers: int = ...,
        num_key_value_heads: int | None = ...,
        num_local_experts: int = ...,
        rope_parameters: RopeParameters | None = None,
        sliding_window: int = ...,
        vocab_size: int = ...,
    ) -> None: ...
