from transformers.configuration_utils import PreTrainedConfig

class DeepseekV32Config(PreTrainedConfig):
    first_k_dense_replace: int
    index_head_dim: int
    index_n_heads: int
    index_topk: int
    kv_lora_rank: int
    max_position_embeddings: int
    num_attention_heads: int

    def __init__(
        self,
        *,
        first_k_dense_replace: int = ...,
        hidden_size: int = ...,
        index_head_dim: int = 128,
        index_n_heads: int = 64,
        index_topk: int = 2048,
        intermediate_size: int = ...,
        kv_lora_rank: int = 512,
        max_position_embeddings: int = ...,
        moe_intermediate_size: int = ...,
        n_group: int = ...,
        n_routed_experts: int = ...,
        n_shared_experts: int = ...,
        num_attention_heads: int = ...,
        num_experts_per_tok: int = ...,
        num_hidden_layers: int = ...,
        num_key_value_heads: int = ...,
        q_lora_rank: int = 1536,
        qk_nope_head_dim: int = 128,
        qk_rope_head_dim: int = 64,
        topk_group: int = ...,
        v_head_dim: int = 128,
        vocab_size: int = ...,
    ) -> None: ...
