"""What this library needs of vLLM beside specs and batches: settings and caches. No tensor is copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from genericbuilders.config import EngineConfig, LayerConfig

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["convert_cache", "convert_config"]


def convert_config(theirs: VllmConfig, block_size: int, layers: Mapping[str, LayerConfig]) -> EngineConfig:
    """vLLM's settings as this library's.

    Args:
        theirs: vLLM's.
        block_size: tokens in one block of the layers' caches.
        layers: the layers, by vLLM's names.
    """
    speculation = theirs.speculative_config
    return EngineConfig(
        max_model_len=theirs.model_config.max_model_len,
        max_num_seqs=theirs.scheduler_config.max_num_seqs,
        max_num_batched_tokens=theirs.scheduler_config.max_num_batched_tokens,
        block_size=block_size,
        num_blocks=theirs.cache_config.num_gpu_blocks,
        dtype=theirs.model_config.dtype,
        enable_prefix_caching=theirs.cache_config.enable_prefix_caching,
        num_speculative_tokens=0 if speculation is None else speculation.num_speculative_tokens or 0,
        layers=layers,
    )


def convert_cache(theirs: Tensor) -> Tensor:
    """vLLM's cache of one layer in this library's layout `KVCacheLayout.BLOCK_FIRST`, as a view.

    vLLM leaves to a back end what the ``2 * head_size`` elements a token are. Here a head's part of a block holds the
    keys of all its tokens, then their values.

    Args:
        theirs: ``[num_blocks, num_kv_heads, block_size, 2 * head_size]``, of any strides if the last two axes are
            contiguous.

    Returns:
        ``[num_blocks, 2, num_kv_heads, block_size, head_size]``.

    Raises:
        ValueError: the shape is another, or the last two axes are not contiguous.
    """
    if theirs.dim() != 4 or theirs.shape[3] % 2 or theirs.stride()[2:] != (theirs.shape[3], 1):
        raise ValueError(
            f"vLLM's cache has shape {tuple(theirs.shape)} and strides {theirs.stride()}; needed is [num_blocks, "
            "num_kv_heads, block_size, 2 * head_size] with the last two axes contiguous (layout LBHNC or BLHNC)"
        )
    num_blocks, num_kv_heads, block_size, width = theirs.shape
    return theirs.view(num_blocks, num_kv_heads, 2, block_size, width // 2).transpose(1, 2)
