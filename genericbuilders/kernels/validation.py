"""What the kernels ask of their inputs; checked at a layer's set-up, or by a kernel that can afford it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = [
    "check_attention",
    "check_block_table",
    "check_blocks",
    "check_cache",
    "check_causal",
    "check_floating",
    "check_keys",
    "check_lse",
    "check_requests",
    "check_rows",
    "check_slots",
    "check_tokens",
    "check_varlen",
    "check_write",
    "checked_counts",
]


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


def check_floating(query: Tensor) -> None:
    """Check that a query is of floating-point numbers: the result is of its dtype.

    Raises:
        TypeError: it is not.
    """
    if not query.is_floating_point():
        raise TypeError(f"query is {query.dtype}; attention takes a floating-point dtype")


def check_cache(key_cache: Tensor, value_cache: Tensor) -> None:
    """Check that two views are the key and the value half of one paged cache.

    Args:
        key_cache: ``[num_blocks, block_size, num_kv_heads, head_size]``.
        value_cache: ``[num_blocks, block_size, num_kv_heads, value_head_size]``.

    Raises:
        ValueError: the axes do not agree, or a last stride is not 1.
        TypeError: the dtypes differ, or nothing is computed in them.
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
    if not key_cache.dtype.is_floating_point or key_cache.dtype.itemsize < 2:
        raise TypeError(
            f"the caches are {key_cache.dtype}; attention over plain caches takes float16, bfloat16, float32, float64"
        )


def check_attention(query: Tensor, key_cache: Tensor, value_cache: Tensor) -> None:
    """Check that a query fits a cache.

    Args:
        query: ``[num_tokens, num_heads, head_size]``.
        key_cache: ``[num_blocks, block_size, num_kv_heads, head_size]``.
        value_cache: ``[num_blocks, block_size, num_kv_heads, value_head_size]``.

    Raises:
        ValueError: the head sizes differ, or the heads do not divide.
        TypeError: the dtypes differ, or are of integers.
    """
    check_cache(key_cache, value_cache)
    check_rows("query", query, 3)
    check_floating(query)
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


def check_requests(query_start_loc: Tensor, seq_lens: Tensor, block_table: Tensor) -> None:
    """Check that every request has a length and a row of the block table.

    Args:
        query_start_loc: ``[num_reqs + 1]``.
        seq_lens: ``[num_reqs]``, or longer.
        block_table: ``[num_reqs, max_blocks]``, or longer.

    Raises:
        ValueError: there are fewer lengths or rows.
    """
    num_reqs = query_start_loc.shape[0] - 1
    if seq_lens.shape[0] < num_reqs or block_table.shape[0] < num_reqs:
        raise ValueError(
            f"query_start_loc describes {num_reqs} requests, seq_lens {seq_lens.shape[0]} and block_table "
            f"{block_table.shape[0]}"
        )


def check_blocks(blocks: Tensor, num_blocks: int) -> None:
    """Check, on the host, that a cache has the blocks that are read; a device would have to be waited for.

    Args:
        blocks: any shape, of integers.
        num_blocks: blocks of the cache.

    Raises:
        ValueError: one is negative, or not below ``num_blocks``.
    """
    if blocks.device.type != "cpu" or not blocks.numel():
        return
    low, high = (int(end) for end in blocks.aminmax())
    if low < 0 or high >= num_blocks:
        raise ValueError(
            f"block_table names block {low if low < 0 else high} within a sequence; the cache has blocks 0 to "
            f"{num_blocks - 1}"
        )


def check_slots(slots: Tensor, num_slots: int) -> None:
    """Check, on the host, that a cache has the slots that are written to; a device would have to be waited for.

    Args:
        slots: ``[num_tokens]``; those below 0 are not written.
        num_slots: slots of the cache.

    Raises:
        ValueError: one is not below ``num_slots``.
    """
    if slots.device.type == "cpu" and slots.numel() and int(slots.max()) >= num_slots:
        raise ValueError(f"slot_mapping names slot {int(slots.max())}; the cache has slots 0 to {num_slots - 1}")


def check_write(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
    """Check that keys and values are what a cache keeps: an assignment would spread one head over all.

    Args:
        key: ``[num_tokens, num_kv_heads, head_size]``.
        value: ``[num_tokens, num_kv_heads, value_head_size]``.
        key_cache: ``[num_blocks, block_size, num_kv_heads, head_size]``.
        value_cache: ``[num_blocks, block_size, num_kv_heads, value_head_size]``.
        slot_mapping: ``[num_tokens]``, or longer.

    Raises:
        ValueError: shapes that do not fit each other.
        TypeError: the caches' dtypes differ.
    """
    check_cache(key_cache, value_cache)
    for name, tensor, cache in (("key", key, key_cache), ("value", value, value_cache)):
        if tensor.dim() != 3 or tensor.shape[1:] != cache.shape[2:]:
            raise ValueError(
                f"{name} has [num_kv_heads, head_size] {tuple(tensor.shape[1:])} and the cache "
                f"{tuple(cache.shape[2:])}: was the cache made for another layer?"
            )
    if value.shape[0] != key.shape[0]:
        raise ValueError(f"key has {key.shape[0]} tokens and value {value.shape[0]}")
    if slot_mapping.shape[0] < key.shape[0]:
        raise ValueError(f"slot_mapping has {slot_mapping.shape[0]} entries for {key.shape[0]} tokens")


def check_causal(row: int, num_new: int, length: int, causal: bool) -> None:
    """Check that each of a row's new tokens has a key, which the causal mask takes for granted.

    Raises:
        ValueError: there are more new tokens than keys, under ``causal``.
    """
    if length < 0 or (causal and num_new > length):
        raise ValueError(f"row {row} has {num_new} new tokens but a length of {length} tokens in all")


def check_tokens(row: int, start: int, end: int, num_tokens: int) -> None:
    """Check the bounds of a row's new tokens.

    Raises:
        ValueError: they are not among the ``num_tokens`` that there are.
    """
    if not 0 <= start <= end <= num_tokens:
        raise ValueError(f"query_start_loc says that row {row} is tokens {start} to {end}, of {num_tokens} tokens")


def checked_counts(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], num_tokens: int, causal: bool
) -> npt.NDArray[np.int64]:
    """The new tokens of each row; none of a row whose sequence has no length.

    Args:
        starts: ``[num_rows + 1]``: where each row's new tokens begin.
        lengths: ``[num_rows]``: of the sequences.
        num_tokens: tokens that there are.
        causal: whether each new token must have a key.

    Raises:
        ValueError: a row's tokens are not among those that there are, its length is negative, or, under ``causal``, it
            has more tokens than its sequence; it is named.
    """
    counts = np.diff(starts)
    for row in np.flatnonzero((starts[:-1] < 0) | (counts < 0) | (starts[1:] > num_tokens)).tolist():
        check_tokens(row, int(starts[row]), int(starts[row + 1]), num_tokens)
    counts = np.where(lengths != 0, counts, 0)
    for row in np.flatnonzero((lengths < 0) | (counts > lengths)).tolist():
        check_causal(row, int(counts[row]), int(lengths[row]), causal)
    return counts


def check_keys(row: int, first: int, last: int, num_keys: int) -> None:
    """Check the bounds of a row's keys.

    Raises:
        ValueError: they are not among the ``num_keys`` that there are.
    """
    if not 0 <= first <= last <= num_keys:
        raise ValueError(f"cu_seqlens_k says that row {row} is keys {first} to {last}, of {num_keys} keys")


def check_lse(lse: Tensor | None, query: Tensor) -> None:
    """Check that log-sum-exps have a place for each of the query's tokens and heads.

    Args:
        lse: ``[num_tokens, num_heads]`` float32, beside a float64 query also float64; ``None`` is right.
        query: ``[num_tokens, num_heads, head_size]``.

    Raises:
        ValueError: another shape or dtype.
    """
    if lse is None:
        return
    if lse.shape != query.shape[:2] or lse.dtype not in (
        torch.float32,
        torch.promote_types(query.dtype, torch.float32),
    ):
        raise ValueError(
            f"lse is {lse.dtype} {tuple(lse.shape)}; it must be torch.float32 {tuple(query.shape[:2])}, a number for "
            "each of the query's tokens and heads"
        )


def check_varlen(query: Tensor, key: Tensor, value: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor) -> None:
    """Check what attention without a cache is given, as far as shapes say.

    Args:
        query: ``[num_tokens, num_heads, head_size]``.
        key: ``[num_keys, num_kv_heads, head_size]``.
        value: ``[num_keys, num_kv_heads, value_head_size]``.
        cu_seqlens_q: ``[num_rows + 1]`` int32.
        cu_seqlens_k: ``[num_rows + 1]`` int32.

    Raises:
        ValueError: shapes that do not fit each other.
        TypeError: dtypes that differ or are of integers, or bounds that are not int32.
    """
    check_floating(query)
    if query.dim() != 3 or key.dim() != 3 or value.dim() != 3 or key.shape[:2] != value.shape[:2]:
        raise ValueError(
            f"query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)} must be [tokens, "
            "heads, head_size] each, and key and value have the same tokens and heads"
        )
    if query.shape[2] != key.shape[2]:
        raise ValueError(f"query has head_size {query.shape[2]} and key {key.shape[2]}; they must be the same")
    if not key.shape[1] or query.shape[1] % key.shape[1]:
        raise ValueError(
            f"num_heads {query.shape[1]} is not a multiple of num_kv_heads {key.shape[1]}: every key-value head serves "
            "the same number of query heads"
        )
    if not query.dtype == key.dtype == value.dtype:
        raise TypeError(f"query is {query.dtype}, key {key.dtype} and value {value.dtype}; they must be the same")
    for name, bounds in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        if bounds.dtype != torch.int32:
            raise TypeError(f"{name} is {bounds.dtype}; it must be torch.int32")
        if bounds.dim() != 1 or not len(bounds) or not bounds.is_contiguous():
            raise ValueError(f"{name} has shape {tuple(bounds.shape)}; it must be a contiguous [num_rows + 1]")
    if len(cu_seqlens_q) != len(cu_seqlens_k):
        raise ValueError(
            f"cu_seqlens_q bounds {len(cu_seqlens_q) - 1} rows and cu_seqlens_k {len(cu_seqlens_k) - 1}; each row has "
            "queries and keys"
        )
