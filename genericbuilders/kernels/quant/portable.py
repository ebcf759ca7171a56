"""Attention over a quantised cache on any device, in bounded memory, without turning keys back.

Keys are unpacked a span at a time and stay as they are stored: queries are turned instead, once a token, and so are the
sums of values, once at the end. Factors of keys go onto their scores, factors of values onto their weights.
"""

from __future__ import annotations

import torch
from torch import Tensor

from genericbuilders.kernels.quant.rows import Rows, cut_rows, decode_rows
from genericbuilders.kernels.quant.slots import SlotCodec
from genericbuilders.kernels.quant.validation import check_quantised
from genericbuilders.kernels.validation import check_block_table, check_blocks, check_requests

__all__ = ["paged_attention"]

# Elements of unpacked keys, values and scores at a time (4 MiB of float32): what a core's cache holds.
SPAN_ELEMENTS = 2**20
# Keys in a span at least; so many rows as leave room for them are taken together.
MIN_SPAN = 256
NOTHING_SEEN = -1e30


def paged_attention(
    query: Tensor,
    cache: Tensor,
    codec: SlotCodec,
    *,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    block_table: Tensor,
    scale: float,
    causal: bool,
    max_query_len: int | None = None,
    max_seq_len: int | None = None,
    may_read: bool | None = None,
) -> Tensor:
    """Attend over a paged cache; see `genericbuilders.kernels.quant.protocols.QuantisedAttention`.

    Scores and sums are float32, or float64 for a float64 query. Memory beyond the inputs does not grow with the
    sequences.

    Args:
        query: as there, and so is what follows.
        cache: the slots.
        codec: of the cache.
        query_start_loc: where rows begin.
        seq_lens: how long sequences are.
        block_table: where they are.
        scale: factor on the scores.
        causal: whether a token sees only itself and what came before.
        max_query_len: a bound on the rows' new tokens.
        max_seq_len: a bound on ``seq_lens``.
        may_read: whether lengths may be read by the host, which then takes rows of like length together; ``None``: on a
            CPU alone. If not, and with both bounds given and ``max_query_len`` 1, a CUDA graph can hold the call.

    Returns:
        ``[num_tokens, num_heads, head_size]``, of the query's dtype.

    Raises:
        ValueError: shapes that do not fit each other, a block table too narrow for a sequence, on a CPU a block that
            the cache does not have, or, under ``causal``, more new tokens than the sequence has.
    """
    check_quantised(query, cache, codec)
    check_requests(query_start_loc, seq_lens, block_table)
    num_reqs = query_start_loc.shape[0] - 1
    lengths, table = seq_lens[:num_reqs], block_table[:num_reqs]
    if may_read is None:
        may_read = query.device.type == "cpu"
    if may_read or max_query_len != 1 or max_seq_len is None:
        # What the buffers hold for a row without tokens is nobody's length.
        lengths = torch.where(query_start_loc.diff() > 0, lengths, 0)
        check_block_table(lengths, table, cache.shape[2])
    turned = codec.turn_query(query.to(torch.promote_types(query.dtype, torch.float32))) * scale
    attended = torch.zeros_like(turned)
    if not may_read and max_query_len == 1 and max_seq_len is not None:
        # A bound on lengths may be more than the table has room for.
        reach = min(max_seq_len, table.shape[1] * cache.shape[2])
        _attend(turned, cache, codec, decode_rows(query_start_loc, lengths, reach), table, causal, attended)
    else:

        def size(width: int) -> int:
            return SPAN_ELEMENTS // (MIN_SPAN * _per_key(query, cache, width))

        for rows in cut_rows(query_start_loc, lengths, query.shape[0], causal, size):
            _attend(turned, cache, codec, rows, table, causal, attended)
    return codec.turn_back(attended).to(query.dtype)


def _per_key(query: Tensor, cache: Tensor, width: int) -> int:
    """Elements that a key takes for a row of ``width`` new tokens: itself, its value, its scores."""
    return 2 * cache.shape[1] * query.shape[2] + width * query.shape[1]


def _attend(
    query: Tensor, cache: Tensor, codec: SlotCodec, rows: Rows, block_table: Tensor, causal: bool, out: Tensor
) -> None:
    """Attend for one group of rows, span by span; writes sums of unpacked values to ``out``."""
    num_kv_heads, block_size = cache.shape[1], cache.shape[2]
    num_rows, width, group = len(rows.start), rows.width, query.shape[1] // num_kv_heads
    ordinal = torch.arange(width, device=query.device)
    valid = (ordinal < rows.new_tokens[:, None]) & (rows.length > 0)[:, None]
    token = torch.where(valid, rows.start[:, None] + ordinal, 0)
    heads = query[token].view(num_rows, width, num_kv_heads, group, -1).permute(0, 2, 3, 1, 4).flatten(2, 3)
    largest = heads.new_full((*heads.shape[:3], 1), NOTHING_SEEN)
    total, summed = torch.zeros_like(largest), torch.zeros_like(heads)
    step = max(1, SPAN_ELEMENTS // (num_rows * _per_key(query, cache, width)) // block_size)
    for first in range(0, -(-rows.longest // block_size), step):
        last = min(first + step, -(-rows.longest // block_size))
        key_index = torch.arange(first * block_size, last * block_size, device=query.device)
        slots = _gather(cache, block_table, rows, first, last)
        keys, key_factors = codec.unpack_keys(slots)
        scores = heads @ keys.to(heads.dtype).transpose(2, 3)
        if key_factors is not None:
            scores *= key_factors[:, :, None]
        if last * block_size > rows.seen_by_all:
            seen = (key_index < rows.length[:, None])[:, None]
            if causal:
                seen = seen & (key_index <= (rows.position[:, None] + ordinal)[:, :, None])
            unseen = ~seen[:, None, None].expand(-1, 1, -1, width, -1)
            scores.view(num_rows, num_kv_heads, group, width, -1).masked_fill_(unseen, float("-inf"))
        before, largest = largest, torch.maximum(largest, scores.amax(-1, keepdim=True))
        weights = (scores - largest).exp_()
        shrink = (before - largest).exp_()
        total = total * shrink + weights.sum(-1, keepdim=True)
        values, value_factors = codec.unpack_values(slots)
        if value_factors is not None:
            weights *= value_factors[:, :, None]
        summed = summed * shrink + weights @ values.to(weights.dtype)
    # What sees nothing has no weights, and a sum of 0.
    summed /= total.clamp(min=torch.finfo(total.dtype).tiny)
    rows_first = summed.view(num_rows, num_kv_heads, group, width, -1).permute(0, 3, 1, 2, 4).flatten(2, 3)
    if width == 1:
        # Nothing here depends on the data's shape, so that a CUDA graph can hold it. Invalid rows would overwrite
        # token 0; they add zero to it instead.
        out.index_add_(0, token[:, 0], torch.where(valid[:, 0, None, None], rows_first[:, 0], 0.0))
    else:
        out[token[valid]] = rows_first[valid]


def _gather(cache: Tensor, block_table: Tensor, rows: Rows, first: int, last: int) -> Tensor:
    """``[num_rows, num_kv_heads, tokens, slot_bytes]``: blocks ``first`` to ``last`` of each row.

    What lies beyond a row's keys comes as zeros, which every format unpacks to finite numbers: a slot that nobody wrote
    may hold anything, and a weight of zero would not silence it.
    """
    num_kv_heads, block_size = cache.shape[1], cache.shape[2]
    index = torch.arange(first, last, device=cache.device)
    in_use = index * block_size < rows.length[:, None]
    # Entries beyond the sequence may be anything; they are replaced before they are used as an index.
    blocks = torch.where(in_use, block_table[rows.request, first:last], 0)
    check_blocks(blocks, cache.shape[0])
    pages = cache.index_select(0, blocks.flatten()).view(len(rows.start), last - first, num_kv_heads, block_size, -1)
    slots = pages.transpose(1, 2).flatten(2, 3)
    if last * block_size > rows.seen_by_all:
        key_index = torch.arange(first * block_size, last * block_size, device=cache.device)
        slots.masked_fill_((key_index >= rows.length[:, None])[:, None, :, None], 0)
    return slots
