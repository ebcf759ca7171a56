"""The oracle: what the kernels mean, in plain torch, one request at a time, on any device and in any dtype."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from genericbuilders.kernels.scoring import PLAIN, Scoring
from genericbuilders.kernels.validation import (
    check_attention,
    check_block_table,
    check_cache,
    check_causal,
    check_keys,
    check_lse,
    check_tokens,
    check_varlen,
)

__all__ = ["paged_attention", "varlen_attention", "write_kv_cache"]


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
    scoring: Scoring = PLAIN,
    lse: Tensor | None = None,
) -> Tensor:
    """Attend over a paged cache; see `genericbuilders.kernels.protocols.PagedAttention` for the arguments.

    Scores and sums are float32 for half-precision inputs, and of the inputs' own dtype otherwise.

    Returns:
        ``[num_tokens, num_heads, value_head_size]``, of the query's dtype.

    Raises:
        ValueError: shapes that do not fit each other, a block table too narrow for a sequence, or, under ``causal``,
            more new tokens than the sequence has.
        TypeError: dtypes that differ.
    """
    del max_query_len, max_seq_len
    check_attention(query, key_cache, value_cache)
    scoring.check_heads(query.shape[1])
    check_lse(lse, query)
    num_reqs = query_start_loc.shape[0] - 1
    check_block_table(seq_lens[:num_reqs], block_table, key_cache.shape[1])
    out = _start(query, value_cache, out, lse)
    block_size = key_cache.shape[1]
    for row in range(num_reqs):
        start, end, length = int(query_start_loc[row]), int(query_start_loc[row + 1]), int(seq_lens[row])
        check_tokens(row, start, end, query.shape[0])
        if length == 0 or start == end:
            continue
        check_causal(row, end - start, length, causal)
        # Blocks in front of the window may hold anything.
        before = max(0, length - (end - start) - (scoring.sliding_window or length) + 1) // block_size
        blocks = block_table[row, before : -(-length // block_size)].long()
        keys = key_cache[blocks].flatten(0, 1)[: length - before * block_size]
        values = value_cache[blocks].flatten(0, 1)[: length - before * block_size]
        _attend(query, keys, values, slice(start, end), scale, causal, scoring, out, lse)
    return out


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    scale: float,
    causal: bool,
    scoring: Scoring = PLAIN,
    lse: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Attend without a cache; see `genericbuilders.kernels.protocols.VarlenAttention` for the arguments.

    Returns:
        ``[num_tokens, num_heads, value_head_size]``, of the query's dtype.

    Raises:
        ValueError: shapes that do not fit each other, bounds outside the tensors, or, under ``causal``, fewer keys than
            queries.
        TypeError: dtypes that differ.
    """
    del max_seqlen_q, max_seqlen_k
    check_varlen(query, key, value, cu_seqlens_q, cu_seqlens_k)
    scoring.check_heads(query.shape[1])
    check_lse(lse, query)
    out = _start(query, value, out, lse)
    for row in range(len(cu_seqlens_q) - 1):
        start, end = int(cu_seqlens_q[row]), int(cu_seqlens_q[row + 1])
        first, last = int(cu_seqlens_k[row]), int(cu_seqlens_k[row + 1])
        check_tokens(row, start, end, query.shape[0])
        if first == last or start == end:
            continue
        check_keys(row, first, last, key.shape[0])
        check_causal(row, end - start, last - first, causal)
        _attend(query, key[first:last], value[first:last], slice(start, end), scale, causal, scoring, out, lse)
    return out


def _start(query: Tensor, values: Tensor, out: Tensor | None, lse: Tensor | None) -> Tensor:
    """The result of tokens that see nothing, in ``out`` or a new tensor, and in ``lse``."""
    if out is None:
        out = query.new_empty(*query.shape[:2], values.shape[-1])
    out.zero_()
    if lse is not None:
        lse.fill_(-math.inf)
    return out


def _attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tokens: slice,
    scale: float,
    causal: bool,
    scoring: Scoring,
    out: Tensor,
    lse: Tensor | None,
) -> None:
    """Dense attention of a row's tokens over its ``[s, num_kv_heads, head_size]``; writes to ``out`` and ``lse``."""
    working = torch.promote_types(query.dtype, torch.float32)
    group = query.shape[1] // keys.shape[1]
    new = query[tokens].to(working).transpose(0, 1)
    num_new, length = new.shape[1], keys.shape[0]
    position = torch.arange(length - num_new, length, device=query.device)[:, None]
    place = torch.arange(length, device=query.device)[None, :]
    seen = torch.ones(num_new, length, dtype=torch.bool, device=query.device)
    if causal:
        seen &= place <= position
    if scoring.sliding_window is not None:
        seen &= (position - place).abs() < scoring.sliding_window
    read = seen.any(0)[:, None, None]
    # A slot that nobody sees may hold NaN, which a weight of zero would not silence.
    keys = torch.where(read, keys, 0.0).to(working).transpose(0, 1).repeat_interleave(group, 0)
    values = torch.where(read, values, 0.0).to(working).transpose(0, 1).repeat_interleave(group, 0)
    scores = new @ keys.transpose(1, 2) * scale
    if scoring.soft_cap is not None:
        scores = scoring.soft_cap * torch.tanh(scores / scoring.soft_cap)
    if scoring.alibi_slopes is not None:
        scores = scores + scoring.alibi_slopes.to(working)[:, None, None] * (place - position)
    scores = scores.masked_fill(~seen, -math.inf)
    if scoring.sinks is not None:
        scores = torch.cat([scores, scoring.sinks.to(working)[:, None, None].expand(-1, num_new, 1)], -1)
    sums = torch.logsumexp(scores, -1, keepdim=True)
    # Nothing in sight: -inf - -inf.
    weights = torch.where(scores == -math.inf, 0.0, torch.exp(scores - sums))
    out[tokens] = (weights[..., :length] @ values).transpose(0, 1).to(query.dtype)
    if lse is not None:
        lse[tokens] = sums[..., 0].transpose(0, 1)
