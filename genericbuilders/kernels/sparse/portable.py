"""Sparse attention in batched torch operations, on any device: no loop runs over requests or tokens."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels.sparse.validation import check_select, check_sparse
from genericbuilders.kernels.validation import check_block_table, check_blocks, check_requests, checked_counts

__all__ = ["select_topk", "sparse_attention"]

# Elements that are gathered or computed at once, for a number of rows or tokens. In float32 16 MiB, which a CPU's
# allocator keeps for the next chunk; more it would get from the system anew each time.
CHUNK_ELEMENTS = 4 * 2**20
# Products of queries and keys, all heads included, that are computed before they are summed: what a CPU's cache holds.
PRODUCTS = 2**20
# A position in the lower half of a key that sorts by score first; larger for earlier ones.
LAST_POSITION = 2**32 - 1


def select_topk(
    query: Tensor,
    weights: Tensor,
    key_cache: Tensor,
    *,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    block_table: Tensor,
    scale: float,
    topk: int,
    max_query_len: int | None = None,
    max_seq_len: int | None = None,
) -> Tensor:
    """Select keys; see `genericbuilders.kernels.sparse.protocols.SelectTopk` for arguments, result and errors.

    With both bounds given nothing is read back from a device; the block table must then have room for ``max_seq_len``.
    Rows are padded to the longest; scores take 4 bytes for each of its tokens and keys, their selection four times
    that. Where the bound on lengths is at most ``topk``, nothing is scored: every key is selected.
    """
    check_select(query, weights, key_cache, topk)
    check_requests(query_start_loc, seq_lens, block_table)
    num_reqs, num_tokens = query_start_loc.shape[0] - 1, len(query)
    lengths, table = seq_lens[:num_reqs], block_table[:num_reqs]
    asked = max_seq_len is None or max_query_len is None or lengths.device.type == "cpu"
    if asked:
        # What the buffers hold for a row without tokens is nobody's length.
        lengths = torch.where(query_start_loc.diff() > 0, lengths, 0)
        starts = query_start_loc.cpu().numpy().astype(np.int64)
        checked_counts(starts, lengths.cpu().numpy().astype(np.int64), num_tokens, causal=True)
    check_block_table(lengths if asked else torch.tensor([max_seq_len or 0]), table, key_cache.shape[1])
    counts = query_start_loc.diff()
    longest = max_seq_len if max_seq_len is not None else int(lengths.max()) if num_reqs else 0
    width = max_query_len if max_query_len is not None else int(counts.max()) if num_reqs else 0
    # A bound on lengths may be more than the table has room for.
    longest, width = min(longest, table.shape[1] * key_cache.shape[1]), min(width, num_tokens)
    # What belongs to no token goes to a row that nobody reads, so that no shape depends on data.
    out = torch.full((num_tokens + 1, topk), -1, dtype=torch.int32, device=query.device)
    if not num_reqs or not longest or not width:
        return out[:-1]
    ordinal = torch.arange(width, device=query.device)
    valid = ordinal < counts[:, None]
    token = torch.where(valid, query_start_loc[:-1, None] + ordinal, num_tokens).long()
    # Tokens of a request of length 0 see less than nothing.
    seen = torch.where(valid, (lengths - counts)[:, None] + ordinal + 1, 0)
    per_row = longest * (2 * key_cache.shape[2] + 6 * width)
    step = max(1, CHUNK_ELEMENTS // per_row)
    for first in range(0, num_reqs, step):
        rows = slice(first, min(first + step, num_reqs))
        if longest <= topk:
            picked = torch.arange(longest, dtype=torch.int32, device=query.device)
            picked = torch.where(picked < seen[rows, :, None], picked, -1)
        else:
            keys = _gather(key_cache, table[rows], lengths[rows], longest)
            chosen = token[rows].clamp(max=num_tokens - 1)
            picked = _best(_scores(query[chosen], weights[chosen], keys, scale), seen[rows], topk)
        out[token[rows].flatten(), : picked.shape[2]] = picked.flatten(0, 1)
    return out[:-1]


def _gather(key_cache: Tensor, table: Tensor, lengths: Tensor, longest: int) -> Tensor:
    """The keys of each row, ``[rows, longest, head_size]``; anything behind a row's length."""
    block_size = key_cache.shape[1]
    column = torch.arange(-(-longest // block_size), device=table.device)
    blocks = torch.where(column * block_size < lengths[:, None], table[:, : len(column)], 0)
    check_blocks(blocks, key_cache.shape[0])
    return key_cache[blocks.long()].flatten(1, 2)[:, :longest]


def _scores(query: Tensor, weights: Tensor, keys: Tensor, scale: float) -> Tensor:
    """Every token's scores of its row's keys, ``[rows, width, num_keys]`` float32.

    Args:
        query: ``[rows, width, num_heads, head_size]``.
        weights: ``[rows, width, num_heads]``.
        keys: ``[rows, num_keys, head_size]``.
        scale: factor on the products.
    """
    rows, width, heads, _ = query.shape
    num_keys = keys.shape[1]
    query, weights, wide = query.float(), weights.float(), keys.float().mT
    scores = query.new_empty(rows, width, num_keys)
    step = max(1, PRODUCTS // (rows * heads * num_keys))
    for first in range(0, width, step):
        part = slice(first, first + step)
        products = query[:, part].flatten(1, 2) @ wide
        products = products.mul_(scale).relu_().view(rows, -1, heads, num_keys)
        scores[:, part] = (weights[:, part, None] @ products).squeeze(2)
    return scores


def _best(scores: Tensor, seen: Tensor, topk: int) -> Tensor:
    """The positions of the best scores, ``[rows, width, topk]`` int32, ascending; -1 where there are fewer.

    Args:
        scores: ``[rows, width, num_keys]`` float32; changed in place.
        seen: ``[rows, width]``: keys from the front that a token sees.
        topk: positions of a token.
    """
    num_keys = scores.shape[2]
    # Zero has two signs, which would order equal scores.
    bits = scores.nan_to_num_(nan=math.inf, posinf=math.inf, neginf=-math.inf).add_(0.0).view(torch.int32)
    # As integers, floats below zero are in reverse.
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32
    place = torch.arange(num_keys, device=scores.device)
    ordered |= LAST_POSITION - place
    ordered.masked_fill_(place >= seen[..., None], torch.iinfo(torch.int64).min)
    best = ordered.topk(topk, dim=-1, sorted=False).values
    position = (LAST_POSITION - (best & LAST_POSITION)).sort(dim=-1).values
    return torch.where(position < num_keys, position, -1).int()


def sparse_attention(query: Tensor, cache: Tensor, slots: Tensor, *, value_size: int, scale: float) -> Tensor:
    """Attend over slots; see `genericbuilders.kernels.sparse.protocols.SparseAttention`.

    Memory beyond the inputs is bounded: tokens are taken in chunks.
    """
    check_sparse(query, cache, slots, value_size)
    out = query.new_zeros(*query.shape[:2], value_size)
    num_keys = slots.shape[1]
    if not num_keys or not query.shape[0]:
        return out
    block_size = cache.shape[1]
    step = max(1, CHUNK_ELEMENTS // (num_keys * (cache.shape[2] + 2 * query.shape[1])))
    for first in range(0, len(query), step):
        part = slots[first : first + step]
        chosen = part >= 0
        some = chosen.any(1)
        # Where nothing is chosen a slot that is chosen stands in: what nobody wrote may hold NaN, which a weight of
        # zero would not silence.
        stand_in = part.max(1, keepdim=True).values.clamp(min=0)
        read = torch.where(chosen, part, stand_in)
        keys = cache[torch.div(read, block_size, rounding_mode="floor"), read % block_size][:, None]
        seen = (chosen | ~some[:, None])[:, None, None]
        # Values as long as keys: torch's fused kernel takes no others, and the rest costs less than doing without.
        attended = F.scaled_dot_product_attention(
            query[first : first + step, None], keys, keys, attn_mask=seen, scale=scale
        )
        out[first : first + step] = torch.where(some[:, None, None], attended[:, 0, :, :value_size], 0.0)
    return out
