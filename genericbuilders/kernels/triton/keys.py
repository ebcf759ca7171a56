"""What both kernels do with keys: scores, their rules, and the softmax that goes along with them.

Importing this module imports Triton. Sums are float32; scores are kept in units of log2, since 2 to the power is what
devices compute. Offsets into a cache are 64 bits wide.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["attend_keys", "cap_scores", "load_query", "with_sink"]


@triton.jit
def cap_scores(scores: tl.tensor, cap: tl.tensor) -> tl.tensor:
    """``cap * tanh(scores / cap)``, to a few roundings of its own size for scores of any size.

    Near 0 the quotient of exponentials loses what the first terms of the series keep.
    """
    ratio = scores / cap
    size = tl.abs(ratio)
    fall = tl.exp(-2.0 * size)
    far = (1.0 - fall) / (1.0 + fall)
    square = ratio * ratio
    series = 1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 + square * (-17.0 / 315.0 + square * (62.0 / 2835.0))))
    value = tl.where(size < 0.25, size * series, far)
    return cap * tl.where(ratio < 0, -value, value)


@triton.jit
def load_query(
    query_ptr: tl.tensor,
    token: tl.tensor,
    head: tl.tensor,
    valid: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    HEAD: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    WIDE: tl.constexpr,
) -> tl.tensor:
    """``[rows, HEAD_PADDED]``: the queries of tokens and heads, zero where not ``valid`` and beyond ``HEAD``."""
    element = tl.arange(0, HEAD_PADDED)
    place = tl.cast(token, tl.int64) * token_stride + head * head_stride
    query = tl.load(
        query_ptr + place[:, None] + element[None, :], mask=valid[:, None] & (element < HEAD)[None, :], other=0.0
    )
    if WIDE:
        query = query.to(tl.float32)
    return query


@triton.jit
def attend_keys(
    peak: tl.tensor,
    total: tl.tensor,
    summed: tl.tensor,
    query: tl.tensor,
    position: tl.tensor,
    slope: tl.tensor,
    begin: tl.tensor,
    end: tl.tensor,
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    table_ptr: tl.tensor,
    key_start: tl.tensor,
    key_block_stride: tl.tensor,
    key_token_stride: tl.tensor,
    value_block_stride: tl.tensor,
    value_token_stride: tl.tensor,
    scale: tl.tensor,
    soft_cap: tl.tensor,
    window: tl.tensor,
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
    MASKED: tl.constexpr,
    WIDE: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Go on over the keys at places ``begin`` to ``end``, which are all that is read.

    Args:
        peak: ``[rows]``: the highest score so far, times log2(e); -inf before any.
        total: ``[rows]``: the sum of 2 to the scores less ``peak``.
        summed: ``[rows, VALUE_PADDED]``: the values, weighted likewise.
        query: ``[rows, HEAD_PADDED]``.
        position: ``[rows]``: where the rows' tokens sit.
        slope: ``[rows]``: ALiBi's.
        begin: the first place.
        end: behind the last one.
        key_ptr: one head's keys.
        value_ptr: its values.
        table_ptr: the request's blocks; read if ``PAGED``.
        key_start: where the request's keys start if not ``PAGED``.
        key_block_stride: elements from block to block.
        key_token_stride: elements from token to token.
        value_block_stride: likewise.
        value_token_stride: likewise.
        scale: factor on the scores.
        soft_cap: bound on the scores, if ``SOFT_CAP``.
        window: tokens that a token sees, if ``WINDOW``.
        HEAD: elements of a key.
        HEAD_PADDED: the power of two that holds them.
        VALUE: elements of a value.
        VALUE_PADDED: the power of two that holds them.
        BLOCK_SIZE: tokens in a block.
        KEYS: keys at a time.
        PAGED: whether keys are in blocks.
        CAUSAL: whether a token sees nothing behind itself.
        WINDOW: whether there is one.
        SOFT_CAP: whether there is one.
        ALIBI: whether there are slopes.
        MASKED: whether some row does not see some of the places, or their number is no multiple of ``KEYS``.
        WIDE: whether to compute in float32 whatever the cache holds.

    Returns:
        ``peak``, ``total`` and ``summed``, with these keys.
    """
    element, value_element = tl.arange(0, HEAD_PADDED), tl.arange(0, VALUE_PADDED)
    for first in range(begin, end, KEYS):
        place = first + tl.arange(0, KEYS)
        inside = place < end
        if PAGED:
            block = tl.cast(tl.load(table_ptr + place // BLOCK_SIZE, mask=inside, other=0), tl.int64)
            offset = tl.cast(place % BLOCK_SIZE, tl.int64)
            key_place = block * key_block_stride + offset * key_token_stride
            value_place = block * value_block_stride + offset * value_token_stride
        else:
            offset = tl.cast(key_start + place, tl.int64)
            key_place = offset * key_token_stride
            value_place = offset * value_token_stride
        key_mask, value_mask = (element < HEAD)[:, None], (value_element < VALUE)[None, :]
        if MASKED:
            key_mask, value_mask = key_mask & inside[None, :], value_mask & inside[:, None]
        key = tl.load(key_ptr + key_place[None, :] + element[:, None], mask=key_mask, other=0.0)
        value = tl.load(value_ptr + value_place[:, None] + value_element[None, :], mask=value_mask, other=0.0)
        if WIDE:
            key = key.to(tl.float32)
            value = value.to(tl.float32)
        scores = tl.dot(query, key, input_precision="ieee") * scale
        if SOFT_CAP:
            scores = cap_scores(scores, soft_cap)
        distance = place[None, :] - position[:, None]
        if ALIBI:
            scores += slope[:, None] * distance.to(tl.float32)
        scores *= 1.4426950408889634
        if MASKED:
            seen = inside[None, :]
            if CAUSAL:
                seen = seen & (distance <= 0)
            if WINDOW:
                seen = seen & (tl.abs(distance) < window)
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        # Nothing in sight so far: -inf - -inf.
        anchor = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores - anchor[:, None])
        fade = tl.exp2(peak - anchor)
        total = total * fade + tl.sum(weights, 1)
        summed = summed * fade[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        peak = higher
    return peak, total, summed


@triton.jit
def with_sink(
    peak: tl.tensor, total: tl.tensor, summed: tl.tensor, sink: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """``peak``, ``total`` and ``summed`` beside a logit that takes its share and gives nothing, one for each row."""
    sink = sink * 1.4426950408889634
    higher = tl.maximum(peak, sink)
    fade = tl.exp2(peak - higher)
    return higher, total * fade + tl.exp2(sink - higher), summed * fade[:, None]
