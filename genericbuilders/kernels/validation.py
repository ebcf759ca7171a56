"""What the kernels ask of their inputs; checked at a layer's set-up, or by a kernel that can afford it."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["check_attention", "check_block_table", "check_cache", "check_rows"]


def check_rows(name: str, tensor: Tensor, num_axes: int) -> None:
    """Check the number of axes and that the last one is contiguous.

    Raises:
        ValueError: either does not hold.
    """
    if tensor.dim() != num_axes:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; it must have {num_axes} axes")
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise ValueError(
            f"{name}'s last axis has stride {tensor.stride(-1)}; it must be 1: pass {name}.contiguous() or a view "
            "that leaves the last axis alone"
        )


def check_cache(key_cache: Tensor, value_cache: Tensor) -> None:
    """Check that two views are the key and the value half of one paged cache.

    Args:
        key_cache: ``[num_blocks, block_size, num_kv_heads, head_size]``.
        value_cache: ``[num_blocks, block_size, num_kv_heads, value_head_size]``.

    Raises:
        ValueError: the axes do not agree, or a last stride is not 1.
        TypeError: the dtypes differ.
    """
    check_rows("key_cache", key_cache, 4)
    check_rows("value_cache", value_cache, 4)
    if key_cache.shape[:3] != value_cache.shape[:3]:
        raise ValueError(
            f"key_cache {tuple(key_cache.shape)} and value_cache {tuple(value_cache.shape)} must agree in "
            "[num_blocks, block_size, num_kv_heads]"
        )
    if key_cache.dtype != value_cache.dtype:
        raise TypeError(f"key_cache is {key_cache.dtype} and value_cache {value_cache.dtype}; they must be the same")


def check_attention(query: Tensor, key_cache: Tensor, value_cache: Tensor) -> None:
    """Check that a query fits a cache.

    Args:
        query: ``[num_tokens, num_heads, head_size]``.
        key_cache: ``[num_blocks, block_size, num_kv_heads, head_size]``.
        value_cache: ``[num_blocks, block_size, num_kv_heads, value_head_size]``.

    Raises:
        ValueError: the head sizes differ, or the heads do not divide.
        TypeError: the dtypes differ.
    """
    check_cache(key_cache, value_cache)
    check_rows("query", query, 3)
    if query.shape[2] != key_cache.shape[3]:
        raise ValueError(
            f"query has head_size {query.shape[2]} and the cache {key_cache.shape[3]}: was the cache made for "
            "another layer?"
        )
    if query.shape[1] % key_cache.shape[2]:
        raise ValueError(
            f"num_heads {query.shape[1]} is not a multiple of num_kv_heads {key_cache.shape[2]}: every key-value "
            "head serves the same number of query heads"
        )
    if query.dtype != key_cache.dtype:
        raise TypeError(
            f"query is {query.dtype} and the cache {key_cache.dtype}: convert the query, or make the cache with "
            f"dtype={query.dtype}"
        )


def check_block_table(seq_lens: Tensor, block_table: Tensor, block_size: int) -> None:
    """Check that every sequence's blocks have a column; asks the device for one number.

    Raises:
        ValueError: the table has fewer columns than a sequence needs.
    """
    longest = int(seq_lens.max()) if seq_lens.numel() else 0
    needed = -(-longest // block_size)
    if needed > block_table.shape[1]:
        raise ValueError(
            f"block_table has {block_table.shape[1]} columns, and a sequence of {longest} tokens in blocks of "
            f"{block_size} needs {needed}"
        )
    if block_table.dtype != torch.int32:
        raise TypeError(f"block_table is {block_table.dtype}; it must be torch.int32")
