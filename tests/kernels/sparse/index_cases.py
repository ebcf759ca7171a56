"""Batches whose tokens select keys: what stands behind them is NaN."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from attention_batches import ints, make_batch
from torch import Tensor

from genericbuilders.kernels.sparse.protocols import SelectTopk
from genericbuilders.metadata import CommonAttentionMetadata

__all__ = ["Case", "make_case"]


@dataclass(frozen=True)
class Case:
    """One batch: what a kernel is given."""

    common: CommonAttentionMetadata
    query: Tensor
    weights: Tensor
    cache: Tensor
    topk: int
    scale: float = 0.5

    def run(self, kernel: SelectTopk, *, bounds: bool = True) -> Tensor:
        """What a kernel selects, told the bounds or not."""
        return kernel(
            self.query,
            self.weights,
            self.cache,
            query_start_loc=self.common.query_start_loc,
            seq_lens=self.common.seq_lens,
            block_table=self.common.block_table_tensor,
            scale=self.scale,
            topk=self.topk,
            max_query_len=self.common.max_query_len if bounds else None,
            max_seq_len=self.common.max_seq_len if bounds else None,
        )

    def wide(self) -> Case:
        """The same in float64."""
        return replace(self, query=self.query.double(), weights=self.weights.double(), cache=self.cache.double())

    def seen(self) -> list[tuple[int, Tensor]]:
        """Each token of a row, with the keys that it sees."""
        starts, lengths, size = ints(self.common.query_start_loc), ints(self.common.seq_lens), self.cache.shape[1]
        found: list[tuple[int, Tensor]] = []
        for row, length in enumerate(lengths):
            blocks = self.common.block_table_tensor[row, : -(-length // size)].long()
            keys = self.cache[blocks].flatten(0, 1)
            end = starts[row + 1]
            found += [(token, keys[: length - (end - token) + 1]) for token in range(starts[row], end)]
        return found


def make_case(
    rows: list[tuple[int, int]],
    topk: int,
    *,
    block_size: int = 4,
    heads: int = 3,
    size: int = 4,
    dtype: torch.dtype = torch.float32,
    whole: bool = False,
    padding: int = 0,
    seed: int = 0,
) -> Case:
    """Rows of new and cached tokens.

    Args:
        rows: new tokens and cached ones of each.
        topk: positions of a token.
        block_size: tokens in a block.
        heads: of queries.
        size: elements of a key.
        dtype: of queries and keys.
        whole: small integers, whose sums are exact, so that many scores are equal.
        padding: tokens behind those of the rows, and entries of a table behind a sequence's own.
        seed: of the numbers.
    """
    common = make_batch([new for new, _ in rows], [old for _, old in rows], block_size)
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        if whole:
            return torch.randint(-1, 2, shape, generator=generator).float()
        return torch.randn(shape, generator=generator)

    tokens, table = common.num_actual_tokens + padding, common.block_table_tensor
    cache = torch.full((1 + max([0, *ints(table.flatten())]), block_size, size), math.nan)
    for row, (new, old) in enumerate(rows):
        for place in range(new + old):
            cache[int(table[row, place // block_size]), place % block_size] = numbers(size)
    if padding:
        # Entries that no sequence has may be anything.
        table = torch.cat((table, torch.full((len(table), padding), 10**6, dtype=torch.int32)), 1)
        common = replace(common, block_table_tensor=table)
    return Case(common, numbers(tokens, heads, size).to(dtype), numbers(tokens, heads), cache.to(dtype), topk)
