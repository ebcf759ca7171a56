"""The oracle: attention over a quantised cache is plain attention over what its slots decode to."""

from __future__ import annotations

import torch
from torch import Tensor

from genericbuilders.kernels import reference
from genericbuilders.kernels.quant.slots import SlotCodec, read_pages
from genericbuilders.kernels.quant.validation import check_quantised

__all__ = ["paged_attention"]


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
) -> Tensor:
    """Attend over a paged cache; see `genericbuilders.kernels.quant.protocols.QuantisedAttention`.

    Scores and sums are float32, or float64 for a float64 query. The whole cache is decoded.

    Raises:
        ValueError: shapes that do not fit each other, or a block table too narrow for a sequence.
    """
    check_quantised(query, cache, codec)
    working = torch.promote_types(query.dtype, torch.float32)
    keys, values = read_pages(cache, codec, working)
    attended = reference.paged_attention(
        query.to(working),
        keys,
        values,
        query_start_loc=query_start_loc,
        seq_lens=seq_lens,
        block_table=block_table,
        scale=scale,
        causal=causal,
    )
    return attended.to(query.dtype)
