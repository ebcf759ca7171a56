from contextlib import AbstractContextManager
from typing import Any

import torch

class ModelConfig:
    max_model_len: int
    dtype: torch.dtype

class CacheConfig:
    block_size: int
    num_gpu_blocks: int | None
    enable_prefix_caching: bool
    mamba_cache_mode: str
    mamba_block_size: int | None

class SchedulerConfig:
    max_num_seqs: int
    max_num_batched_tokens: int

class SpeculativeConfig:
    num_speculative_tokens: int | None

class ParallelConfig:
    decode_context_parallel_size: int

class CompilationConfig:
    static_forward_context: dict[str, Any]

class VllmConfig:
    model_config: ModelConfig
    cache_config: CacheConfig
    scheduler_config: SchedulerConfig
    parallel_config: ParallelConfig
    speculative_config: SpeculativeConfig | None
    compilation_config: CompilationConfig

def set_current_vllm_config(vllm_config: VllmConfig) -> AbstractContextManager[None]: ...
