from collections.abc import Mapping

from vllm.config import VllmConfig

class EngineArgs:
    def __init__(
        self,
        *,
        model: str,
        skip_tokenizer_init: bool = ...,
        dtype: str = ...,
        max_model_len: int | None = ...,
        max_num_seqs: int | None = ...,
        max_num_batched_tokens: int | None = ...,
        block_size: int | None = ...,
        enable_prefix_caching: bool | None = ...,
        enforce_eager: bool = ...,
        mamba_cache_mode: str = ...,
        mamba_block_size: int | None = ...,
        speculative_config: Mapping[str, object] | None = ...,
    ) -> None: ...
    def create_engine_config(self) -> VllmConfig: ...
