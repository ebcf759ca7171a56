"""The oracle: what sparse attention's kernels mean, in plain torch, one token at a time, on any device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from genericbuilders.kernels.sparse.validation import check_select, check_sparse
from genericbuilders.kernels.validation import check_block_table, check_causal, check_tokens

__all__ = ["index_scores", "select_topk", "sparse_attention"]


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

    Scores are float64 for float64 inputs.
    """
    del max_query_len, max_seq_len
    check_select(query, weights, key_cache, topk)
    num_reqs = query_start_loc.shape[0] - 1
    check_block_table(seq_lens[:num_reqs], block_table, key_cache.shape[1])
    out = torch.full((len(query), topk), -1, dtype=torch.int32, device=query.device)
    for row in range(num_reqs):
        start, end, length = int(query_start_loc[row]), int(query_start_loc[row + 1]), int(seq_lens[row])
        check_tokens(row, start, end, query.shape[0])
        if length == 0 or start == end:
            continue
        check_causal(row, end - start, length, causal=True)
        keys = key_cache[block_table[row, : -(-length // key_cache.shape[1])].long()].flatten(0, 1)[:length]
        for token in range(start, end):
            seen = length - (end - token) + 1
            scores = index_scores(query[token], weights[token], keys[:seen], scale)
            best = scores.sort(dim=0, descending=True, stable=True).indices[:topk]
            out[token, : len(best)] = best.sort(dim=0).values.to(torch.int32)
    return out


def index_scores(query: Tensor, weights: Tensor, keys: Tensor, scale: float) -> Tensor:
    """The scores of a token's keys, ``[num_keys]``: float32, or float64 for float64 inputs; NaN becomes infinite.

    Args:
        query: ``[num_heads, head_size]``.
        weights: ``[num_heads]``.
        keys: ``[num_keys, head_size]``.
        scale: factor on the products.
    """
    working = torch.promote_types(query.dtype, torch.float32)
    products = (query.to(working) @ keys.to(working).T * scale).relu()
    return (weights.to(working) @ products).nan_to_num(nan=math.inf, posinf=math.inf, neginf=-math.inf)


def sparse_attention(query: Tensor, cache: Tensor, slots: Tensor, *, value_size: int, scale: float) -> Tensor:
    """Attend over slots; see `genericbuilders.kernels.sparse.protocols.SparseAttention`.

    Scores and sums are float32 for half-precision inputs, and of the inputs' own dtype otherwise.
    """
    check_sparse(query, cache, slots, value_size)
    working = torch.promote_types(query.dtype, torch.float32)
    out = query.new_zeros(*query.shape[:2], value_size)
    for token in range(len(query)):
        chosen = slots[token][slots[token] >= 0]
        if not len(chosen):
            continue
        keys = cache[chosen // cache.shape[1], chosen % cache.shape[1]].to(working)
        shares = (query[token].to(working) @ keys.T * scale).softmax(-1)
        out[token] = (shares @ keys[:, :value_size]).to(query.dtype)
    return out
