from transformers.configuration_utils import PreTrainedConfig

class JambaConfig(PreTrainedConfig):
    intermediate_size: int
    max_position_embeddings: int
    num_attention_heads: int
    num_key_value_heads: int
    attn_layer_offset: int
    attn_layer_period: int
    hidden_act: str
    layer_types: list[str]
    mamba_d_conv: int
    mamba_d_state: int
    num_experts: int

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
        attn_layer_offset: int = 4,
        attn_layer_period: int = 8,
        hidden_act: str = "silu",
        mamba_d_conv: int = 4,
        mamba_d_state: int = 16,
        num_experts: int = 16,
    ) -> None: ...
