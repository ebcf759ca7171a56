from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_rope_utils import RopeParameters

class BambaConfig(PreTrainedConfig):
    intermediate_size: int
    max_position_embeddings: int
    num_attention_heads: int
    num_key_value_heads: int
    attn_layer_indices: list[int] | None
    hidden_act: str
    layer_types: list[str]
    mamba_chunk_size: int
    mamba_d_conv: int
    mamba_d_state: int
    mamba_n_groups: int
    mamba_n_heads: int
    rope_parameters: RopeParameters
    time_step_limit: tuple[float, float] | None

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
        attn_layer_indices: list[int] | None = None,
        hidden_act: str = "silu",
        mamba_chunk_size: int = 256,
        mamba_d_conv: int = 4,
        mamba_d_head: int | str = "auto",
        mamba_d_state: int = 256,
        mamba_n_groups: int = 1,
        mamba_n_heads: int = 128,
        mamba_proj_bias: bool = False,
        rope_parameters: RopeParameters | None = None,
        tie_word_embeddings: bool = ...,
        time_step_limit: tuple[float, float] | None = ...,
    ) -> None: ...
