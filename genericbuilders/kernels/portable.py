"""Batched torch operations on any device: no compiler is needed, and no loop runs over requests."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels.scoring import PLAIN, Scoring
from genericbuilders.kernels.validation import (
    check_attention,
    check_block_table,
    check_blocks,
    check_lse,
    check_requests,
    check_slots,
    check_write,
    checked_counts,
)

__all__ = ["paged_attention", "write_kv_cache"]

# Elements of gathered keys, values and scores that one chunk of requests may hold (float32: 256 MiB).
CHUNK_ELEMENTS = 64 * 2**20
# New tokens of one request that are padded together; a longer row is cut into several.
MAX_SEGMENT = 256


def write_kv_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
    """Write token ``i`` to slot ``slot_mapping[i]``; slot -1 writes nothing.

    Args:
        key: ``[num_tokens, num_kv_heads, head_size]``.
        value: ``[num_tokens, num_kv_heads, value_head_size]``.
        key_cache: ``[num_blocks, block_size, num_kv_heads, head_size]``, changed in place.
        value_cache: ``[num_blocks, block_size, num_kv_heads, value_head_size]``, changed in place.
        slot_mapping: ``[num_tokens]`` int64, or longer (a padded buffer).

    Raises:
        ValueError: the caches do not agree, keys or values have other heads than they, ``slot_mapping`` is shorter than
            the keys, or, on a CPU, names a slot that the cache does not have.
        TypeError: the caches' dtypes differ.
    """
    check_write(key, value, key_cache, value_cache, slot_mapping)
    num_tokens, block_size = key.shape[0], key_cache.shape[1]
    slots = slot_mapping[:num_tokens]
    check_slots(slots, key_cache.shape[0] * block_size)
    if slots.is_cuda:
        # The shape must not depend on the data under a CUDA graph. Unwritten tokens go to the null block, which
        # nobody reads.
        slots = slots.clamp(min=0)
    else:
        written = slots >= 0
        key, value, slots = key[written], value[written], slots[written]
    block, offset = torch.div(slots, block_size, rounding_mode="floor"), slots % block_size
    key_cache[block, offset] = key.to(key_cache.dtype)
    value_cache[block, offset] = value.to(value_cache.dtype)


class _Rows(NamedTuple):
    """Pieces of requests: first token, new tokens, its position, keys [first, length) that they see, and request."""

    start: Tensor
    new_tokens: Tensor
    position: Tensor
    first: Tensor
    length: Tensor
    request: Tensor


class _Call(NamedTuple):
    """What every chunk of requests needs; ``lse`` has a row more than there are tokens, for rows that are padding."""

    query: Tensor
    key_cache: Tensor
    value_cache: Tensor
    block_table: Tensor
    scale: float
    causal: bool
    scoring: Scoring
    out: Tensor
    lse: Tensor | None

    @property
    def plain(self) -> bool:
        """Whether torch's own attention can do it: a mask may be, but nothing else happens to the scores."""
        rules = self.scoring
        return self.lse is None and rules.soft_cap is None and rules.alibi_slopes is None and rules.sinks is None

    def elements(self, width: int, keys: int) -> int:
        """Elements that one row of a chunk needs: gathered keys and values, padded queries, scores and mask."""
        sizes = self.query.shape[2] + self.value_cache.shape[3]
        gathered = keys * self.value_cache.shape[2] * sizes * 2
        needed = gathered + width * self.query.shape[1] * (2 * keys + sizes)
        return needed if self.plain else 2 * needed


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

    With both bounds given and ``max_query_len`` 1 nothing is read back from a device; the block table must then have
    room for ``max_seq_len``. Memory beyond the inputs is bounded: requests are taken in chunks.

    Returns:
        ``[num_tokens, num_heads, value_head_size]``, of the query's dtype.

    Raises:
        ValueError: shapes that do not fit each other, a block table too narrow for a sequence, on a CPU a block that
            the cache does not have or a length below 0, or, under ``causal``, more new tokens than the sequence has.
        TypeError: dtypes that differ.
    """
    check_attention(query, key_cache, value_cache)
    scoring.check_heads(query.shape[1])
    check_lse(lse, query)
    check_requests(query_start_loc, seq_lens, block_table)
    num_reqs = query_start_loc.shape[0] - 1
    lengths, table = seq_lens[:num_reqs], block_table[:num_reqs]
    # Where asking for the lengths would wait for the device, their bound is checked instead.
    if max_seq_len is None or max_query_len != 1 or lengths.device.type == "cpu":
        # What the buffers hold for a row without tokens is nobody's length.
        lengths = torch.where(query_start_loc.diff() > 0, lengths, 0)
        check_block_table(lengths, table, key_cache.shape[1])
    else:
        check_block_table(torch.tensor([max_seq_len]), table, key_cache.shape[1])
    if max_seq_len is None:
        max_seq_len = int(lengths.max()) if num_reqs else 0
    if out is None:
        out = query.new_empty(query.shape[0], query.shape[1], value_cache.shape[3])
    out.zero_()
    sums = None
    if lse is not None:
        sums = lse.new_full((query.shape[0] + 1, query.shape[1]), -math.inf)
    call = _Call(query, key_cache, value_cache, table, scale, causal, scoring, out, sums)
    if query.shape[0] and max_seq_len:
        _attend_all(call, query_start_loc, lengths, max_query_len, max_seq_len)
    if lse is not None and sums is not None:
        lse.copy_(sums[:-1])
    return out


def _attend_all(
    call: _Call, query_start_loc: Tensor, lengths: Tensor, max_query_len: int | None, max_seq_len: int
) -> None:
    if max_query_len == 1:
        num_reqs, window, block_size = lengths.shape[0], call.scoring.sliding_window, call.key_cache.shape[1]
        if lengths.device.type == "cpu":
            starts = query_start_loc.numpy().astype(np.int64)
            checked_counts(starts, lengths.numpy().astype(np.int64), call.query.shape[0], call.causal)
        counts = torch.where(lengths > 0, query_start_loc.diff(), 0)
        # A bound on lengths may be more than the table has room for.
        longest = min(max_seq_len, call.block_table.shape[1] * block_size)
        position, first = lengths - counts, torch.zeros_like(lengths)
        if window is not None:
            first, longest = (lengths - min(window, 2**31 - 1)).clamp(min=0), min(longest, window + block_size - 1)
        request = torch.arange(num_reqs, device=lengths.device)
        rows = _Rows(query_start_loc[:-1], counts, position, first, lengths, request)
        step = max(1, CHUNK_ELEMENTS // call.elements(1, longest))
        chunks = [(start, min(start + step, num_reqs), 1, longest) for start in range(0, num_reqs, step)]
    else:
        rows, chunks = _cut(call, query_start_loc, lengths)
    for start, end, width, keys in chunks:
        _attend(call, _Rows(*(column[start:end] for column in rows)), width, keys)


def _cut(call: _Call, query_start_loc: Tensor, seq_lens: Tensor) -> tuple[_Rows, list[tuple[int, int, int, int]]]:
    """Cut requests into segments and group alike ones: ``(first, last, widest, longest)`` for each chunk."""
    starts = query_start_loc.cpu().numpy().astype(np.int64)
    lengths = seq_lens.cpu().numpy().astype(np.int64)
    counts = checked_counts(starts, lengths, call.query.shape[0], call.causal)
    pieces = -(-counts // MAX_SEGMENT)
    request = np.repeat(np.arange(len(counts)), pieces)
    ordinal = np.arange(len(request)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    count = np.minimum(counts[request] - ordinal * MAX_SEGMENT, MAX_SEGMENT)
    position = lengths[request] - counts[request] + ordinal * MAX_SEGMENT
    length, block_size = position + count if call.causal else lengths[request], call.key_cache.shape[1]
    first = np.zeros_like(length)
    if call.scoring.sliding_window is not None:
        window = min(call.scoring.sliding_window, 2**31)
        first = np.maximum(position - window + 1, 0)
        # Positions are negative where there are more tokens than keys; then some see nothing.
        length = np.maximum(np.minimum(length, position + count - 1 + window), first)
    spanned = length - first // block_size * block_size
    order = np.lexsort((-spanned, -count))
    columns = np.stack([starts[request] + ordinal * MAX_SEGMENT, count, position, first, length, request])[:, order]
    spanned = spanned[order]
    chunks: list[tuple[int, int, int, int]] = []
    begin = longest = 0
    num_rows = columns.shape[1]
    for end in range(num_rows + 1):
        width = int(columns[1, begin]) if begin < num_rows else 0
        if end < num_rows:
            grown = max(longest, int(spanned[end]))
            fits = (end + 1 - begin) * call.elements(width, grown) <= CHUNK_ELEMENTS
            if end == begin or (fits and 2 * int(columns[1, end]) > width):
                longest = grown
                continue
        if end > begin:
            chunks.append((begin, end, width, longest))
        begin = end
        longest = int(spanned[end]) if end < num_rows else 0
    return _Rows(*torch.as_tensor(columns).to(call.query.device)), chunks


def _attend(call: _Call, rows: _Rows, width: int, keys: int) -> None:
    """Attend for one chunk: at most ``width`` new tokens in a row, and ``keys`` keys from its first block on."""
    query, key_cache, window = call.query, call.key_cache, call.scoring.sliding_window
    block_size, num_kv_heads = key_cache.shape[1], key_cache.shape[2]
    num_rows, group, device = rows.start.shape[0], query.shape[1] // num_kv_heads, query.device
    num_columns = -(-keys // block_size)
    column = torch.arange(num_columns, device=device)
    offsets = torch.arange(num_columns * block_size, device=device)
    # Entries outside the row's keys may be anything; they are replaced before they are used as an index.
    if window is None:
        place = offsets
        within = place < rows.length[:, None]
        entries = call.block_table[rows.request, :num_columns]
    else:
        column = column + torch.div(rows.first, block_size, rounding_mode="floor")[:, None]
        place = offsets + column[:, :1] * block_size
        within = (place >= rows.first[:, None]) & (place < rows.length[:, None])
        entries = call.block_table[rows.request[:, None], column.clamp(max=call.block_table.shape[1] - 1)]
    blocks = torch.where(column * block_size < rows.length[:, None], entries.long(), 0)
    check_blocks(blocks, key_cache.shape[0])
    token_blocks, offsets = blocks[:, offsets // block_size], offsets % block_size
    unwritten = ~within[:, :, None, None]
    # A slot nobody wrote may hold NaN, which a weight of zero would not silence.
    gathered_keys = key_cache[token_blocks, offsets].masked_fill_(unwritten, 0.0).transpose(1, 2)
    gathered_values = call.value_cache[token_blocks, offsets].masked_fill_(unwritten, 0.0).transpose(1, 2)
    ordinal = torch.arange(width, device=device)
    valid = ordinal < rows.new_tokens[:, None]
    token = torch.where(valid, rows.start[:, None] + ordinal, 0)
    seen = within[:, None, :] & valid[:, :, None]
    position = (rows.position[:, None] + ordinal)[:, :, None]
    place = place[..., None, :]
    if call.causal:
        seen = seen & (place <= position)
    if window is not None:
        seen = seen & ((place - position).abs() < window)
    padded = query[token].view(num_rows, width, num_kv_heads, group, -1).permute(0, 2, 3, 1, 4).flatten(2, 3)
    if call.plain:
        mask = seen[:, None, None].expand(-1, 1, group, -1, -1).flatten(2, 3)
        attended = F.scaled_dot_product_attention(
            padded, gathered_keys, gathered_values, attn_mask=mask, scale=call.scale
        )
        if window is not None and not call.causal:
            attended = torch.where(mask.any(-1, keepdim=True), attended, 0.0)
    else:
        attended, sums = _weigh(call, padded, gathered_keys, gathered_values, seen, place - position)
        if call.lse is not None:
            # Invalid ones go to the row that nobody reads.
            kept = torch.where(valid, token, call.lse.shape[0] - 1)
            by_token = sums.permute(0, 3, 1, 2).reshape(num_rows * width, -1)
            call.lse[kept.flatten()] = by_token.to(call.lse.dtype)
    attended = attended.reshape(num_rows, num_kv_heads, group, width, -1).permute(0, 3, 1, 2, 4).flatten(2, 3)
    if width == 1:
        # One token in a row: nothing here depends on the data's shape, so that a CUDA graph can hold it. Invalid
        # rows would overwrite token 0; they add zero to it instead.
        call.out.index_add_(0, token[:, 0], torch.where(valid[:, 0, None, None], attended[:, 0], 0.0))
    else:
        call.out[token[valid]] = attended[valid]


def _weigh(
    call: _Call, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, distance: Tensor
) -> tuple[Tensor, Tensor]:
    """Attention step by step, for what torch's own does not do.

    Args:
        call: the scoring, and the scale.
        query: ``[rows, num_kv_heads, group * width, head_size]``.
        keys: ``[rows, num_kv_heads, keys, head_size]``.
        values: ``[rows, num_kv_heads, keys, value_head_size]``.
        seen: ``[rows, width, keys]``: which key a token sees.
        distance: ``[rows, width, keys]``: a key's position less the token's.

    Returns:
        ``[rows, num_kv_heads, group * width, value_head_size]`` and the log-sum-exps ``[rows, num_kv_heads, group,
        width]``.
    """
    rules, working = call.scoring, torch.promote_types(query.dtype, torch.float32)
    num_rows, num_kv_heads = query.shape[:2]
    width = seen.shape[1]
    scores = (query.to(working) @ keys.to(working).mT * call.scale).view(
        num_rows, num_kv_heads, -1, width, keys.shape[2]
    )
    if rules.soft_cap is not None:
        scores = rules.soft_cap * torch.tanh(scores / rules.soft_cap)
    if rules.alibi_slopes is not None:
        slopes = rules.alibi_slopes.to(working).view(num_kv_heads, -1, 1, 1)
        scores = scores + slopes * distance[:, None, None]
    scores = scores.masked_fill(~seen[:, None, None], -math.inf)
    sums = torch.logsumexp(scores, -1)
    if rules.sinks is not None:
        sums = torch.logaddexp(sums, rules.sinks.to(working).view(num_kv_heads, -1, 1))
    # Where nothing is seen both are -inf.
    weights = torch.where(scores == -math.inf, 0.0, torch.exp(scores - sums[..., None]))
    return (weights.flatten(2, 3) @ values.to(working)).to(query.dtype), sums
