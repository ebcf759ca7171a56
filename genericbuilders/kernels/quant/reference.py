"""The oracle: attention over a quantised cache is plain attention over what its slots decode to."""

from __future__ import annotations

import torch
from torch import Tensor

from genericbuilders.kernels import reference
from genericbuilders.kernels.quant.slots import SlotCodec, read_pages

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
) -> Tensor:
    """Attend over a paged cache; see `genericbuilders.kernels.protocols.PagedAttention` for what is not told here.

    Scores and sums are float32, or float64 for a float64 query. The whole cache is decoded.

    Args:
        query: ``[num_tokens, num_heads, head_size]``.
        cache: ``[num_blocks, num_kv_heads, block_size, slot_bytes]`` uint8, the new tokens already written.
        codec: of the cache.
        query_start_loc: ``[num_reqs + 1]`` int32.
        seq_lens: ``[num_reqs]`` int32, or longer.
        block_table: ``[num_reqs, max_blocks]`` int32, or longer.
        scale: factor on the scores before the softmax.
        causal: whether a token sees only itself and what came before.

    Returns:
        ``[num_tokens, num_heads, head_size]``, of the query's dtype.

    Raises:
        ValueError: shapes that do not fit each other, or a block table too narrow for a sequence.
    """
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
