"""The oracle: what the kernels mean, in plain torch, one request at a time, on any device and in any dtype."""

from __future__ import annotations

import torch
from torch import Tensor

from genericbuilders.kernels.validation import check_attention, check_block_table, check_cache

__all__ = ["paged_attention", "write_kv_cache"]


def write_kv_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
    """Write token ``i`` to slot ``slot_mapping[i]``; slot -1 writes nothing.

    Args:
        key: ``[num_tokens, num_kv_heads, head_size]``.
        value: ``[num_tokens, num_kv_heads, value_head_size]``.
        key_cache: ``[num_blocks, block_size, num_kv_heads, head_size]``, changed in place.
        value_cache: ``[num_blocks, block_size, num_kv_heads, value_head_size]``, changed in place.
        slot_mapping: ``[num_tokens]`` int64, or longer (a padded buffer).

    Raises:
        ValueError: the caches do not agree, or ``slot_mapping`` is shorter than the keys.
        TypeError: the caches' dtypes differ.
    """
    check_cache(key_cache, value_cache)
    num_tokens = key.shape[0]
    if slot_mapping.shape[0] < num_tokens:
        raise ValueError(f"slot_mapping has {slot_mapping.shape[0]} entries for {num_tokens} tokens")
    slots = slot_mapping[:num_tokens]
    written = torch.nonzero(slots >= 0).flatten()
    slots = slots[written]
    block, offset = slots // key_cache.shape[1], slots % key_cache.shape[1]
    key_cache[block, offset] = key[written].to(key_cache.dtype)
    value_cache[block, offset] = value[written].to(value_cache.dtype)


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    *,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    block_table: Tensor,
    scale: float,
    causal: bool,
    max_query_len: int | None = None,
    max_seq_len: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Attend over a paged cache; see `genericbuilders.kernels.protocols.PagedAttention` for the arguments.

    Scores and sums are float32 for half-precision inputs, and of the inputs' own dtype otherwise.

    Returns:
        ``[num_tokens, num_heads, value_head_size]``, of the query's dtype.

    Raises:
        ValueError: shapes that do not fit each other, or a block table too narrow for a sequence.
        TypeError: dtypes that differ.
    """
    del max_query_len, max_seq_len
    check_attention(query, key_cache, value_cache)
    num_reqs = query_start_loc.shape[0] - 1
    check_block_table(seq_lens[:num_reqs], block_table, key_cache.shape[1])
    if out is None:
        out = query.new_empty(query.shape[0], query.shape[1], value_cache.shape[3])
    out.zero_()
    for row in range(num_reqs):
        start, end, length = int(query_start_loc[row]), int(query_start_loc[row + 1]), int(seq_lens[row])
        if length == 0 or start == end:
            continue
        blocks = block_table[row, : -(-length // key_cache.shape[1])].long()
        keys = key_cache[blocks].flatten(0, 1)[:length]
        values = value_cache[blocks].flatten(0, 1)[:length]
        out[start:end] = _attend(query[start:end], keys, values, scale=scale, causal=causal)
    return out


def _attend(query: Tensor, keys: Tensor, values: Tensor, *, scale: float, causal: bool) -> Tensor:
    """Dense attention of one request's ``[q, num_heads, head_size]`` over its ``[s, num_kv_heads, head_size]``."""
    working = torch.promote_types(query.dtype, torch.float32)
    num_new, length = query.shape[0], keys.shape[0]
    group = query.shape[1] // keys.shape[1]
    heads_first = query.to(working).transpose(0, 1)
    keys = keys.to(working).transpose(0, 1).repeat_interleave(group, 0)
    values = values.to(working).transpose(0, 1).repeat_interleave(group, 0)
    scores = heads_first @ keys.transpose(1, 2) * scale
    if causal:
        position = torch.arange(length - num_new, length, device=query.device)
        unseen = torch.arange(length, device=query.device)[None, :] > position[:, None]
        scores = scores.masked_fill(unseen, float("-inf"))
    return (torch.softmax(scores, -1) @ values).transpose(0, 1).to(query.dtype)
