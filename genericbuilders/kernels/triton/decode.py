"""Decodes: each request's keys are split among programs, and their partial results merged.

Importing this module imports Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from genericbuilders.kernels.triton.keys import attend_keys, load_query

__all__ = ["attend_splits", "merge_splits"]


@triton.jit
def attend_splits(
    part_ptr: tl.tensor,
    sum_ptr: tl.tensor,
    query_ptr: tl.tensor,
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    table_ptr: tl.tensor,
    key_start_ptr: tl.tensor,
    query_start_ptr: tl.tensor,
    length_ptr: tl.tensor,
    slope_ptr: tl.tensor,
    scale: tl.tensor,
    soft_cap: tl.tensor,
    window: tl.tensor,
    query_token_stride: tl.tensor,
    query_head_stride: tl.tensor,
    key_block_stride: tl.tensor,
    key_token_stride: tl.tensor,
    key_head_stride: tl.tensor,
    value_block_stride: tl.tensor,
    value_token_stride: tl.tensor,
    value_head_stride: tl.tensor,
    table_stride: tl.tensor,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
    HEAD: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    VALUE: tl.constexpr,
    VALUE_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    PAGED: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    ALIBI: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """One request, one key-value head with its ``GROUP`` query heads, one of ``SPLITS`` equal runs of its keys.

    Requests of another number of new tokens than one are left alone. Grid: requests, key-value heads, splits.

    Args:
        part_ptr: ``[requests, heads, SPLITS, VALUE]`` float32, written: the run's result.
        sum_ptr: ``[requests, heads, SPLITS]`` float32, written: its log2-sum-exp; -inf of a run without keys, whose
            result is then not written.
        query_ptr: ``[tokens, heads, HEAD]``.
        key_ptr: ``[blocks, BLOCK_SIZE, kv_heads, HEAD]``.
        value_ptr: ``[blocks, BLOCK_SIZE, kv_heads, VALUE]``.
        table_ptr: ``[requests, columns]``.
        key_start_ptr: ``[requests]``: where each request's keys start if not ``PAGED``.
        query_start_ptr: ``[requests + 1]``.
        length_ptr: ``[requests]``.
        slope_ptr: ``[heads]``.
        scale: factor on the scores.
        soft_cap: bound on them.
        window: tokens that a token sees, its own included.
        query_token_stride: elements from token to token.
        query_head_stride: elements from head to head.
        key_block_stride: elements from block to block.
        key_token_stride: elements from token to token.
        key_head_stride: elements from head to head.
        value_block_stride: likewise.
        value_token_stride: likewise.
        value_head_stride: likewise.
        table_stride: entries from request to request.
        GROUP: query heads of a key-value head.
        ROWS: the power of two, 16 at least, that holds them.
        SPLITS: runs.
        HEAD: see `attend_keys`, here and below.
        HEAD_PADDED: likewise.
        VALUE: likewise.
        VALUE_PADDED: likewise.
        BLOCK_SIZE: likewise.
        KEYS: likewise.
        PAGED: likewise.
        SOFT_CAP: likewise.
        ALIBI: likewise.
        WIDE: likewise.
    """
    request, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    token = tl.load(query_start_ptr + request)
    length = tl.load(length_ptr + request)
    if (tl.load(query_start_ptr + request + 1) - token == 1) & (length > 0):
        row = tl.arange(0, ROWS)
        valid = row < GROUP
        head = kv_head * GROUP + row
        query = load_query(
            query_ptr,
            token + row * 0,
            head,
            valid,
            query_token_stride,
            query_head_stride,
            HEAD,
            HEAD_PADDED,
            WIDE,
        )
        slope = tl.zeros([ROWS], tl.float32)
        if ALIBI:
            slope = tl.load(slope_ptr + head, mask=valid, other=0.0)
        key_start = tl.load(key_start_ptr + request)
        first = tl.maximum(length - window, 0)
        share = tl.cdiv(tl.cdiv(length - first, SPLITS), KEYS) * KEYS
        begin = first + split * share
        end = tl.minimum(begin + share, length)
        peak, total, summed = attend_keys(
            tl.full([ROWS], float("-inf"), tl.float32),
            tl.zeros([ROWS], tl.float32),
            tl.zeros([ROWS, VALUE_PADDED], tl.float32),
            query,
            length - 1 + row * 0,
            slope,
            begin,
            end,
            key_ptr + kv_head * key_head_stride,
            value_ptr + kv_head * value_head_stride,
            table_ptr + tl.cast(request, tl.int64) * table_stride,
            key_start,
            key_block_stride,
            key_token_stride,
            value_block_stride,
            value_token_stride,
            scale,
            soft_cap,
            window,
            HEAD,
            HEAD_PADDED,
            VALUE,
            VALUE_PADDED,
            BLOCK_SIZE,
            KEYS,
            PAGED,
            False,
            False,
            SOFT_CAP,
            ALIBI,
            True,
            WIDE,
        )
        place = (tl.cast(request, tl.int64) * tl.num_programs(1) * GROUP + head) * SPLITS + split
        empty = begin >= end
        total = tl.where(empty, 1.0, total)
        tl.store(sum_ptr + place, peak + tl.log2(total), mask=valid)
        element = tl.arange(0, VALUE_PADDED)
        tl.store(
            part_ptr + place[:, None] * VALUE + element[None, :],
            summed / total[:, None],
            mask=valid[:, None] & (element < VALUE)[None, :],
        )


@triton.jit
def merge_splits(
    out_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    part_ptr: tl.tensor,
    sum_ptr: tl.tensor,
    query_start_ptr: tl.tensor,
    length_ptr: tl.tensor,
    sink_ptr: tl.tensor,
    out_token_stride: tl.tensor,
    out_head_stride: tl.tensor,
    lse_token_stride: tl.tensor,
    lse_head_stride: tl.tensor,
    SPLITS: tl.constexpr,
    VALUE: tl.constexpr,
    VALUE_PADDED: tl.constexpr,
    SINKS: tl.constexpr,
    LSE: tl.constexpr,
) -> None:
    """Merge the runs of one request and one query head exactly, by their log-sum-exps. Grid: requests, heads.

    Args:
        out_ptr: ``[tokens, heads, VALUE]``, written.
        lse_ptr: ``[tokens, heads]`` float32, written if ``LSE``: natural logarithms.
        part_ptr: what `attend_splits` wrote.
        sum_ptr: what `attend_splits` wrote.
        query_start_ptr: ``[requests + 1]``.
        length_ptr: ``[requests]``.
        sink_ptr: ``[heads]``.
        out_token_stride: elements from token to token.
        out_head_stride: elements from head to head.
        lse_token_stride: likewise.
        lse_head_stride: likewise.
        SPLITS: runs.
        VALUE: elements of a value.
        VALUE_PADDED: the power of two that holds them.
        SINKS: whether there are sinks.
        LSE: whether to write log-sum-exps.
    """
    request, head = tl.program_id(0), tl.program_id(1)
    token = tl.load(query_start_ptr + request)
    length = tl.load(length_ptr + request)
    if (tl.load(query_start_ptr + request + 1) - token == 1) & (length > 0):
        split, element = tl.arange(0, SPLITS), tl.arange(0, VALUE_PADDED)
        place = (tl.cast(request, tl.int64) * tl.num_programs(1) + head) * SPLITS + split
        sums = tl.load(sum_ptr + place)
        part_place = part_ptr + place[:, None] * VALUE + element[None, :]
        parts = tl.load(part_place, mask=(element < VALUE)[None, :], other=0.0)
        peak = tl.max(sums, 0)
        if SINKS:
            peak = tl.maximum(peak, tl.load(sink_ptr + head) * 1.4426950408889634)
        shares = tl.exp2(sums - peak)
        total = tl.sum(shares, 0)
        if SINKS:
            total += tl.exp2(tl.load(sink_ptr + head) * 1.4426950408889634 - peak)
        out = tl.sum(parts * shares[:, None], 0) / total
        long_token = tl.cast(token, tl.int64)
        out_place = out_ptr + long_token * out_token_stride + head * out_head_stride + element
        tl.store(out_place, out.to(out_ptr.dtype.element_ty), mask=element < VALUE)
        if LSE:
            tl.store(
                lse_ptr + long_token * lse_token_stride + head * lse_head_stride,
                (peak + tl.log2(total)) * 0.6931471805599453,
            )
