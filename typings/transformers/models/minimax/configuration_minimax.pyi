from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_rope_utils import RopeParameters

class MiniMaxConfig(PreTrainedConfig):
    intermediate_size: int
    max_position_embeddings: int
    num_attention_heads: int
    num_key_value_heads: int
    block_size: int
    head_dim: int | None
    hidden_act: str
    layer_types: list[str]
    num_local_experts: int
    rope_parameters: RopeParameters
    sliding_window: int | None

    def __init__(
        self,
        *,
        vocab_size: int = ...,
        hidden_size: int = ...,
        num_hidden_layers: int = ...,
        intermediate_size: int = ...,
        num_attention_heads: int = ...,
        num_key_value_heads: int | None = ...,
        max_position_embeddings: int = ...,
        block_size: int = 256,
        head_dim: int | None = None,
        hidden_act: str = "silu",
        layer_types: list[str] | None = None,
        num_experts_per_tok: int = 2,
        num_local_experts: int = 8,
        rope_parameters: RopeParameters | None = None,
        sliding_window: int | None = None,
    ) -> None: ...
