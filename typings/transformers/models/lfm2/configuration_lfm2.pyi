from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_rope_utils import RopeParameters

class Lfm2Config(PreTrainedConfig):
    intermediate_size: int
    max_position_embeddings: int
    num_attention_heads: int
    num_key_value_heads: int
    conv_L_cache: int
    conv_bias: bool
    layer_types: list[str]
    rope_parameters: RopeParameters

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
        block_multiple_of: int = 256,
        conv_L_cache: int = 3,
        conv_bias: bool = False,
        layer_types: list[str] | None = None,
        rope_parameters: RopeParameters | None = None,
    ) -> None: ...
