"""Rows of several new tokens, one behind the other, over a paged cache or over keys that lie one behind the other.

Importing this module imports Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from genericbuilders.kernels.triton.keys import attend_keys, load_query, with_sink

__all__ = ["attend_rows"]


@triton.jit
def attend_rows(
    out_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    query_ptr: tl.tensor,
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    table_ptr: tl.tensor,
    key_start_ptr: tl.tensor,
    query_start_ptr: tl.tensor,
    length_ptr: tl.tensor,
    slope_ptr: tl.tensor,
    sink_ptr: tl.tensor,
    num_requests: tl.tensor,
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
    out_token_stride: tl.tensor,
    out_head_stride: tl.tensor,
    lse_token_stride: tl.tensor,
    lse_head_stride: tl.tensor,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
    HEAD: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    VALUE: tl.constexpr,
    VALUE_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    PAGED: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFT_CAP: tl.constexpr,
    ALIBI: tl.constexpr,
    SINKS: tl.constexpr,
    LSE: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """``TOKENS`` new tokens of one request, in all query heads of one key-value head.

    Requests of one new token are left alone. A request has its tiles behind those of the requests before it: request
    ``i`` from tile ``query_start[i] // TOKENS + i`` on, which leaves room for one that is not full. Grid: tiles (no
    more than tokens / TOKENS + requests), key-value heads.

    Args:
        out_ptr: ``[tokens, heads, VALUE]``, written.
        lse_ptr: ``[tokens, heads]`` float32, written if ``LSE``: natural logarithms.
        query_ptr: ``[tokens, heads, HEAD]``.
        key_ptr: ``[blocks, BLOCK_SIZE, kv_heads, HEAD]``.
        value_ptr: ``[blocks, BLOCK_SIZE, kv_heads, VALUE]``.
        table_ptr: ``[requests, columns]``.
        key_start_ptr: ``[requests]``: where each request's keys start if not ``PAGED``.
        query_start_ptr: ``[requests + 1]``.
        length_ptr: ``[requests]``.
        slope_ptr: ``[heads]``.
        sink_ptr: ``[heads]``.
        num_requests: requests.
        scale: factor on the scores.
        soft_cap: bound on them.
        window: tokens that a token sees, its own included; more than any sequence has where there is no window.
        query_token_stride: elements from token to token.
        query_head_stride: elements from head to head.
        key_block_stride: elements from block to block.
        key_token_stride: elements from token to token.
        key_head_stride: elements from head to head.
        value_block_stride: likewise.
        value_token_stride: likewise.
        value_head_stride: likewise.
        table_stride: entries from request to request.
        out_token_stride: elements from token to token.
        out_head_stride: elements from head to head.
        lse_token_stride: likewise.
        lse_head_stride: likewise.
        GROUP: query heads of a key-value head.
        ROWS: the power of two, 16 at least, that holds ``TOKENS * GROUP``.
        TOKENS: new tokens of a tile.
        HEAD: see `attend_keys`, here and below.
        HEAD_PADDED: likewise.
        VALUE: likewise.
        VALUE_PADDED: likewise.
        BLOCK_SIZE: likewise.
        KEYS: likewise.
        PAGED: likewise.
        CAUSAL: likewise.
        WINDOW: likewise.
        SOFT_CAP: likewise.
        ALIBI: likewise.
        SINKS: whether there are sinks.
        LSE: whether to write log-sum-exps.
        WIDE: likewise.
    """
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    request, behind = tile * 0, tile * 0 + num_requests
    while behind - request > 1:
        middle = (request + behind) // 2
        starts_later = tl.load(query_start_ptr + middle) // TOKENS + middle > tile
        behind = tl.where(starts_later, middle, behind)
        request = tl.where(starts_later, request, middle)
    start = tl.load(query_start_ptr + request)
    count = tl.load(query_start_ptr + request + 1) - start
    length = tl.load(length_ptr + request)
    before = (tile - start // TOKENS - request) * TOKENS
    if (count > 1) & (before < count) & (length > 0):
        row = tl.arange(0, ROWS)
        ordinal = before + row // GROUP
        valid = (row < TOKENS * GROUP) & (ordinal < count)
        head, token = kv_head * GROUP + row % GROUP, start + ordinal
        query = load_query(
            query_ptr, token, head, valid, query_token_stride, query_head_stride, HEAD, HEAD_PADDED, WIDE
        )
        slope = tl.zeros([ROWS], tl.float32)
        if ALIBI:
            slope = tl.load(slope_ptr + head, mask=valid, other=0.0)
        # Negative without the causal mask, where there are more tokens than keys.
        first_position = length - count + before
        last_position = length - count + tl.minimum(before + TOKENS, count) - 1
        begin = tl.maximum(first_position - window + 1, 0)
        end = tl.maximum(tl.minimum(length, last_position + window), begin)
        if CAUSAL:
            end = tl.minimum(end, last_position + 1)
        # What every row sees needs no mask.
        clear = begin
        if not WINDOW:
            if CAUSAL:
                clear = (first_position + 1) // KEYS * KEYS
            else:
                clear = length // KEYS * KEYS
        key_start = tl.load(key_start_ptr + request)
        keys, values = key_ptr + kv_head * key_head_stride, value_ptr + kv_head * value_head_stride
        table = table_ptr + tl.cast(request, tl.int64) * table_stride
        peak = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        summed = tl.zeros([ROWS, VALUE_PADDED], tl.float32)
        if not WINDOW:
            peak, total, summed = attend_keys(
                peak, total, summed, query, length - count + ordinal, slope, begin, clear, keys, values, table,
                key_start, key_block_stride, key_token_stride, value_block_stride, value_token_stride, scale, soft_cap,
                window, HEAD, HEAD_PADDED, VALUE, VALUE_PADDED, BLOCK_SIZE, KEYS, PAGED, CAUSAL, WINDOW, SOFT_CAP,
                ALIBI, False, WIDE,
            )  # fmt: skip
        peak, total, summed = attend_keys(
            peak, total, summed, query, length - count + ordinal, slope, clear, end, keys, values, table,
            key_start, key_block_stride, key_token_stride, value_block_stride, value_token_stride, scale, soft_cap,
            window, HEAD, HEAD_PADDED, VALUE, VALUE_PADDED, BLOCK_SIZE, KEYS, PAGED, CAUSAL, WINDOW, SOFT_CAP,
            ALIBI, True, WIDE,
        )  # fmt: skip
        if SINKS:
            sink = tl.load(sink_ptr + head, mask=valid, other=0.0)
            peak, total, summed = with_sink(peak, total, summed, sink)
        blind = total == 0.0
        element = tl.arange(0, VALUE_PADDED)
        place = tl.cast(token, tl.int64) * out_token_stride + head * out_head_stride
        out = summed / tl.where(blind, 1.0, total)[:, None]
        tl.store(
            out_ptr + place[:, None] + element[None, :],
            out.to(out_ptr.dtype.element_ty),
            mask=valid[:, None] & (element < VALUE)[None, :],
        )
        if LSE:
            sums = tl.where(blind, float("-inf"), (peak + tl.log2(tl.where(blind, 1.0, total))) * 0.6931471805599453)
            tl.store(lse_ptr + tl.cast(token, tl.int64) * lse_token_stride + head * lse_head_stride, sums, mask=valid)
