from transformers.configuration_utils import PreTrainedConfig

class DeepseekV3Config(PreTrainedConfig):
    first_k_dense_replace: int
    kv_lora_rank: int
    max_position_embeddings: int
    num_attention_heads: int
    rope_interleave: bool

    def __init__(
        self,
        *,
        first_k_dense_replace: int = ...,
        hidden_size: int = ...,
        intermediate_size: int = ...,
        kv_lora_rank: int = 512,
        max_position_embeddings: int = ...,
        moe_intermediate_size: int = ...,
        n_group: int | None = ...,
        n_routed_experts: int = ...,
        n_shared_experts: int = ...,
        num_attention_heads: int = ...,
        num_experts_per_tok: int = ...,
        num_hidden_layers: int = ...,
        num_key_value_heads: int | None = ...,
        q_lora_rank: int | None = 1536,
        qk_nope_head_dim: int = 128,
        qk_rope_head_dim: int = 64,
        topk_group: int | None = ...,
        v_head_dim: int = 128,
        rope_interleave: bool = True,
        vocab_size: int = ...,
    ) -> None: ...
