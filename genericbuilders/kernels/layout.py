"""A layer's cache, split into keys and values by the layout that the layer states."""

from __future__ import annotations

from torch import Tensor

from genericbuilders.config import KVCacheLayout

__all__ = ["split_kv"]


def split_kv(kv_cache: Tensor, layout: KVCacheLayout) -> tuple[Tensor, Tensor]:
    """Views of the keys and the values with the axes that kernels take, whatever the memory looks like.

    The layout is never guessed from the shape: with two blocks both shapes look alike.

    Args:
        kv_cache: ``[num_blocks, 2, num_kv_heads, block_size, head_size]``, or with the first two axes swapped.
        layout: which of the two.

    Returns:
        Keys and values, ``[num_blocks, block_size, num_kv_heads, head_size]`` each.
    """
    kv_axis = 1 if layout is KVCacheLayout.BLOCK_FIRST else 0
    keys, values = kv_cache.unbind(kv_axis)
    return keys.transpose(1, 2), values.transpose(1, 2)
