"""What attention over a quantised cache asks of its inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from genericbuilders.kernels.quant.slots import SlotCodec
from genericbuilders.kernels.validation import check_floating, check_rows

__all__ = ["check_quantised"]


def check_quantised(query: Tensor, cache: Tensor, codec: SlotCodec) -> None:
    """Check that a query, a cache and its codec fit each other.

    Args:
        query: ``[num_tokens, num_heads, head_size]``.
        cache: ``[num_blocks, num_kv_heads, block_size, slot_bytes]``.
        codec: of the cache.

    Raises:
        ValueError: head sizes, bytes or heads do not fit; the numbers are named.
        TypeError: the cache does not hold bytes, or the query holds integers.
    """
    check_floating(query)
    check_rows("query", query, 3)
    check_rows("cache", cache, 4)
    if cache.dtype != torch.uint8:
        raise TypeError(f"the cache is {cache.dtype}; slots are torch.uint8")
    slot = codec.slot
    if query.shape[2] != slot.head_size or cache.shape[3] != slot.slot_bytes:
        raise ValueError(
            f"query has head_size {query.shape[2]} and the cache slots of {cache.shape[3]} bytes, but the codec of "
            f"{slot.mode.name} is made for head_size {slot.head_size} in {slot.slot_bytes} bytes"
        )
    if query.shape[1] % cache.shape[1]:
        raise ValueError(
            f"num_heads {query.shape[1]} is not a multiple of num_kv_heads {cache.shape[1]}: every key-value head "
            "serves the same number of query heads"
        )
