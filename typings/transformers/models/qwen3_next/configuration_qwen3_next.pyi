from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_rope_utils import RopeParameters

class Qwen3NextConfig(PreTrainedConfig):
    intermediate_size: int
    max_position_embeddings: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_act: str
    layer_types: list[str]
    linear_conv_kernel_dim: int
    linear_key_head_dim: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_value_head_dim: int
    num_experts: int
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
        head_dim: int = 256,
        hidden_act: str = "silu",
        layer_types: list[str] | None = None,
        linear_conv_kernel_dim: int = 4,
        linear_key_head_dim: int = 128,
        linear_num_key_heads: int = 16,
        linear_num_value_heads: int = 32,
        linear_value_head_dim: int = 128,
        moe_intermediate_size: int = 512,
        num_experts: int = 512,
        num_experts_per_tok: int = 10,
        rope_parameters: RopeParameters | None = None,
        shared_expert_intermediate_size: int = 512,
    ) -> None: ...
