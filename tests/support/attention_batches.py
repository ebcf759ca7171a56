"""Batches of attention rows for tests, and attention over a paged cache with any mask, by definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import SupportsInt

import torch
from torch import Tensor

from genericbuilders.metadata import CommonAttentionMetadata

__all__ = ["Sees", "attend_by_mask", "int_rows", "ints", "make_batch"]

Sees = Callable[[int, int], bool]
"""Whether a token at the first position sees the one at the second."""


def make_batch(query_lens: Sequence[int], context_lens: Sequence[int], block_size: int) -> CommonAttentionMetadata:
    """Rows whose blocks are handed out one behind the other, from block 1 on."""
    starts, lengths = [0], [new + old for new, old in zip(query_lens, context_lens, strict=True)]
    columns = max(-(-length // block_size) for length in lengths) if lengths else 0
    table = torch.zeros(len(lengths), max(columns, 1), dtype=torch.int32)
    slots: list[int] = []
    block = 1
    for row, (new, length) in enumerate(zip(query_lens, lengths, strict=True)):
        starts.append(starts[-1] + new)
        count = -(-length // block_size)
        table[row, :count] = torch.arange(block, block + count, dtype=torch.int32)
        slots += [
            int(table[row, place // block_size]) * block_size + place % block_size
            for place in range(length - new, length)
        ]
        block += count
    query_start_loc, seq_lens = torch.tensor(starts, dtype=torch.int32), torch.tensor(lengths, dtype=torch.int32)
    return CommonAttentionMetadata(
        query_start_loc=query_start_loc,
        query_start_loc_cpu=query_start_loc,
        seq_lens=seq_lens,
        seq_lens_cpu=seq_lens,
        num_computed_tokens_cpu=torch.tensor(context_lens, dtype=torch.int32),
        num_reqs=len(lengths),
        num_actual_tokens=starts[-1],
        max_query_len=max(query_lens, default=0),
        max_seq_len=max(lengths, default=0),
        block_table_tensor=table,
        slot_mapping=torch.tensor(slots, dtype=torch.int64),
    )


def attend_by_mask(
    common: CommonAttentionMetadata, query: Tensor, keys: Tensor, values: Tensor, scale: float, sees: Sees
) -> Tensor:
    """Attention in the tensors' own precision, token by token.

    Args:
        common: the batch.
        query: ``[num_tokens, num_heads, head_size]``.
        keys: ``[num_blocks, block_size, num_kv_heads, head_size]``, the new ones written.
        values: likewise.
        scale: factor on the scores.
        sees: the mask.
    """
    out = torch.zeros_like(query)
    size, group = keys.shape[1], query.shape[1] // keys.shape[2]
    for row in range(common.num_reqs):
        start, end = int(common.query_start_loc_cpu[row]), int(common.query_start_loc_cpu[row + 1])
        length = int(common.seq_lens_cpu[row])
        for token in range(start, end):
            position = length - (end - token)
            seen = [place for place in range(length) if sees(position, place)]
            at = [(int(common.block_table_tensor[row, place // size]), place % size) for place in seen]
            key = torch.stack([keys[block, offset] for block, offset in at]).repeat_interleave(group, 1)
            value = torch.stack([values[block, offset] for block, offset in at]).repeat_interleave(group, 1)
            weights = torch.einsum("hd,shd->hs", query[token], key).mul(scale).softmax(-1)
            out[token] = torch.einsum("hs,shd->hd", weights, value)
    return out


def ints(values: Iterable[SupportsInt]) -> list[int]:
    """The values of an integer tensor or array of one axis."""
    return [int(value) for value in values]


def int_rows(tensor: Tensor) -> list[list[int]]:
    """The values of an integer tensor of two axes, row by row."""
    return [ints(row) for row in tensor]
