"""Attention without a cache in batched torch operations, on any device; the compiled form is in `native`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from genericbuilders.kernels.portable import paged_attention
from genericbuilders.kernels.scoring import PLAIN, Scoring
from genericbuilders.kernels.validation import check_keys, check_varlen

__all__ = ["varlen_attention"]


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
        ValueError: shapes that do not fit each other, or, where the bounds are on the host, bounds outside the tensors;
            under ``causal`` fewer keys than queries.
        TypeError: dtypes that differ.
    """
    check_varlen(query, key, value, cu_seqlens_q, cu_seqlens_k)
    lengths, num_keys = cu_seqlens_k.diff(), key.shape[0]
    if cu_seqlens_k.device.type == "cpu":
        bounds = cu_seqlens_k.numpy()
        for row in np.flatnonzero((bounds[:-1] < 0) | (np.diff(bounds) < 0) | (bounds[1:] > num_keys)).tolist():
            check_keys(row, int(bounds[row]), int(bounds[row + 1]), num_keys)
    # Each key is a block of its own.
    columns = torch.arange(max(max_seqlen_k, 1), dtype=torch.int32, device=query.device)
    table = (cu_seqlens_k[:-1, None] + columns).clamp(max=max(num_keys - 1, 0))
    return paged_attention(
        query,
        key[:, None],
        value[:, None],
        query_start_loc=cu_seqlens_q,
        seq_lens=lengths,
        block_table=table,
        scale=scale,
        causal=causal,
        max_query_len=max_seqlen_q,
        max_seq_len=max_seqlen_k,
        out=out,
        scoring=scoring,
        lse=lse,
    )
