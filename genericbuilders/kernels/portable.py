"""Batched torch operations on any device: no compiler is needed, and no loop runs over requests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels.validation import check_attention, check_block_table, check_cache

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
        ValueError: the caches do not agree, or ``slot_mapping`` is shorter than the keys.
        TypeError: the caches' dtypes differ.
    """
    check_cache(key_cache, value_cache)
    num_tokens, block_size = key.shape[0], key_cache.shape[1]
    if slot_mapping.shape[0] < num_tokens:
        raise ValueError(f"slot_mapping has {slot_mapping.shape[0]} entries for {num_tokens} tokens")
    slots = slot_mapping[:num_tokens]
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
    """Pieces of requests: their first token, new tokens, position of the first one, keys, and request."""

    start: Tensor
    new_tokens: Tensor
    position: Tensor
    length: Tensor
    request: Tensor


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

    With both bounds given and ``max_query_len`` 1 nothing is read back from the device. Memory beyond the inputs is
    bounded: requests are taken in chunks.

    Returns:
        ``[num_tokens, num_heads, value_head_size]``, of the query's dtype.

    Raises:
        ValueError: shapes that do not fit each other, or a block table too narrow for a sequence.
        TypeError: dtypes that differ.
    """
    check_attention(query, key_cache, value_cache)
    num_reqs = query_start_loc.shape[0] - 1
    lengths, table = seq_lens[:num_reqs], block_table[:num_reqs]
    if max_seq_len is None:
        check_block_table(lengths, table, key_cache.shape[1])
        max_seq_len = int(lengths.max()) if num_reqs else 0
    if out is None:
        out = query.new_empty(query.shape[0], query.shape[1], value_cache.shape[3])
    out.zero_()
    if not (query.shape[0] and max_seq_len):
        return out
    if max_query_len == 1:
        counts = query_start_loc.diff()
        rows = _Rows(query_start_loc[:-1], counts, lengths - counts, lengths, torch.arange(num_reqs, device=out.device))
        step = max(1, CHUNK_ELEMENTS // _elements(query, value_cache, 1, max_seq_len))
        chunks = [(first, min(first + step, num_reqs), 1, max_seq_len) for first in range(0, num_reqs, step)]
    else:
        rows, chunks = _cut(query, value_cache, query_start_loc, lengths, causal)
    for first, last, width, keys in chunks:
        piece = _Rows(*(column[first:last] for column in rows))
        _attend(query, key_cache, value_cache, piece, table, width, keys, scale, causal, out)
    return out


def _elements(query: Tensor, value_cache: Tensor, width: int, keys: int) -> int:
    """Elements that one row of a chunk needs: gathered keys and values, padded queries, scores and mask."""
    heads, head_size = query.shape[1], query.shape[2]
    gathered = keys * value_cache.shape[2] * (head_size + value_cache.shape[3]) * 2
    return gathered + width * heads * (2 * keys + head_size + value_cache.shape[3])


def _cut(
    query: Tensor, value_cache: Tensor, query_start_loc: Tensor, seq_lens: Tensor, causal: bool
) -> tuple[_Rows, list[tuple[int, int, int, int]]]:
    """Cut requests into segments and group alike ones: ``(first, last, widest, longest)`` for each chunk."""
    starts = query_start_loc.cpu().numpy().astype(np.int64)
    lengths = seq_lens.cpu().numpy().astype(np.int64)
    counts = np.where(lengths > 0, np.diff(starts), 0)
    pieces = -(-counts // MAX_SEGMENT)
    request = np.repeat(np.arange(len(counts)), pieces)
    ordinal = np.arange(len(request)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    count = np.minimum(counts[request] - ordinal * MAX_SEGMENT, MAX_SEGMENT)
    position = lengths[request] - counts[request] + ordinal * MAX_SEGMENT
    length = position + count if causal else lengths[request]
    order = np.lexsort((-length, -count))
    columns = np.stack([starts[request] + ordinal * MAX_SEGMENT, count, position, length, request])[:, order]
    chunks: list[tuple[int, int, int, int]] = []
    first = longest = 0
    num_rows = columns.shape[1]
    for last in range(num_rows + 1):
        width = int(columns[1, first]) if first < num_rows else 0
        if last < num_rows:
            grown = max(longest, int(columns[3, last]))
            fits = (last + 1 - first) * _elements(query, value_cache, width, grown) <= CHUNK_ELEMENTS
            if last == first or (fits and 2 * int(columns[1, last]) > width):
                longest = grown
                continue
        if last > first:
            chunks.append((first, last, width, longest))
        first = last
        longest = int(columns[3, last]) if last < num_rows else 0
    return _Rows(*torch.as_tensor(columns).to(query.device)), chunks


def _attend(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    rows: _Rows,
    block_table: Tensor,
    width: int,
    keys: int,
    scale: float,
    causal: bool,
    out: Tensor,
) -> None:
    """Attend for one chunk: at most ``width`` new tokens and ``keys`` keys in a row; writes to ``out``."""
    block_size, num_kv_heads = key_cache.shape[1], key_cache.shape[2]
    num_rows, group = rows.start.shape[0], query.shape[1] // num_kv_heads
    num_blocks = -(-keys // block_size)
    device = query.device
    in_use = torch.arange(num_blocks, device=device) * block_size < rows.length[:, None]
    # Entries beyond the sequence may be anything; they are replaced before they are used as an index.
    blocks = torch.where(in_use, block_table[rows.request, :num_blocks].long(), 0)
    key_index = torch.arange(num_blocks * block_size, device=device)
    within = key_index < rows.length[:, None]
    token_blocks, offsets = blocks[:, key_index // block_size], key_index % block_size
    unwritten = ~within[:, :, None, None]
    # A slot nobody wrote may hold NaN, which a weight of zero would not silence.
    gathered_keys = key_cache[token_blocks, offsets].masked_fill_(unwritten, 0.0).transpose(1, 2)
    gathered_values = value_cache[token_blocks, offsets].masked_fill_(unwritten, 0.0).transpose(1, 2)
    ordinal = torch.arange(width, device=device)
    valid = (ordinal < rows.new_tokens[:, None]) & (rows.length > 0)[:, None]
    token = torch.where(valid, rows.start[:, None] + ordinal, 0)
    seen = within[:, None, :] & valid[:, :, None]
    if causal:
        seen = seen & (key_index <= (rows.position[:, None] + ordinal)[:, :, None])
    padded = query[token].view(num_rows, width, num_kv_heads, group, -1).permute(0, 2, 3, 1, 4).flatten(2, 3)
    mask = seen[:, None, None].expand(-1, 1, group, -1, -1).flatten(2, 3)
    attended = F.scaled_dot_product_attention(padded, gathered_keys, gathered_values, attn_mask=mask, scale=scale)
    attended = attended.reshape(num_rows, num_kv_heads, group, width, -1).permute(0, 3, 1, 2, 4).flatten(2, 3)
    if width == 1:
        # One token in a row: nothing here depends on the data's shape, so that a CUDA graph can hold it. Invalid
        # rows would overwrite token 0; they add zero to it instead.
        out.index_add_(0, token[:, 0], torch.where(valid[:, 0, None, None], attended[:, 0], 0.0))
    else:
        out[token[valid]] = attended[valid]
