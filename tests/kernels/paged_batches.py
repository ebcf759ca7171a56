"""Batches of attention over a paged cache, the rules for their scores, and what "near enough" means for a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from attention_batches import ints
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.kernels import reference
from genericbuilders.kernels.protocols import PagedAttention
from genericbuilders.kernels.scoring import PLAIN, Scoring
from genericbuilders.kernels.tolerance import compare

__all__ = [
    "DTYPES",
    "EDGES",
    "Batch",
    "assert_near_exact",
    "batches",
    "forget",
    "make_batch",
    "make_scoring",
    "scorings",
]

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Batch:
    """One batch: what a kernel is given."""

    query: Tensor
    key_cache: Tensor
    value_cache: Tensor
    query_start_loc: Tensor
    seq_lens: Tensor
    block_table: Tensor
    causal: bool
    scoring: Scoring = PLAIN

    def run(self, kernel: PagedAttention, lse: Tensor | None = None) -> Tensor:
        """What a kernel makes of it."""
        return kernel(
            self.query,
            self.key_cache,
            self.value_cache,
            query_start_loc=self.query_start_loc,
            seq_lens=self.seq_lens,
            block_table=self.block_table,
            scale=1 / math.sqrt(self.query.shape[2]),
            causal=self.causal,
            scoring=self.scoring,
            lse=lse,
        )

    def sums(self, kernel: PagedAttention) -> Tensor:
        """The log-sum-exps, written to a tensor with strides of its own."""
        dtype = torch.promote_types(self.query.dtype, torch.float32)
        lse = torch.full((self.query.shape[1], 2 * self.query.shape[0]), 7.0, dtype=dtype).T[::2]
        self.run(kernel, lse)
        return lse

    def wide(self) -> Batch:
        """The same in float64."""
        return replace(
            self,
            query=self.query.double(),
            key_cache=self.key_cache.double(),
            value_cache=self.value_cache.double(),
        )


def make_batch(
    rows: list[tuple[int, int]],
    *,
    block_size: int = 16,
    num_kv_heads: int = 1,
    group: int = 2,
    head_size: int = 64,
    value_head_size: int | None = None,
    dtype: torch.dtype = torch.float32,
    causal: bool = True,
    padding_tokens: int = 0,
    seed: int = 0,
) -> Batch:
    """A batch of ``(new tokens, tokens before them)`` rows.

    Queries are slices of a wider buffer, the caches are views of one pool, whatever lies beyond a row's use is
    NaN or garbage.
    """
    generator = torch.Generator().manual_seed(seed)
    value_head_size = value_head_size or head_size
    lengths = [new + before for new, before in rows]
    needed = [-(-length // block_size) for length in lengths]
    num_blocks = 1 + sum(needed)
    order = (torch.randperm(num_blocks - 1, generator=generator) + 1).to(torch.int32)
    width = max([*needed, 1]) + 1
    # Garbage beyond a row's own blocks: far outside the pool.
    table = torch.full((len(rows) + 2, width), 2**30, dtype=torch.int32)
    pool = torch.full((num_blocks, num_kv_heads, block_size, head_size + value_head_size), math.nan, dtype=dtype)
    used = 0
    for row, (length, count) in enumerate(zip(lengths, needed, strict=True)):
        table[row, :count] = order[used : used + count]
        for index in range(count):
            filled = min(block_size, length - index * block_size)
            fresh = torch.randn(num_kv_heads, filled, head_size + value_head_size, generator=generator)
            pool[int(order[used + index]), :, :filled] = fresh.to(dtype)
        used += count
    views = pool.transpose(1, 2)
    num_tokens = sum(new for new, _ in rows)
    fused = torch.randn(num_tokens + padding_tokens, num_kv_heads * group + 2, head_size + 3, generator=generator)
    fused[num_tokens:] = math.nan
    starts = torch.tensor([0, *(new for new, _ in rows)]).cumsum(0).to(torch.int32)
    return Batch(
        query=(3 * fused).to(dtype)[:, 1:-1, :head_size],
        key_cache=views[..., :head_size],
        value_cache=views[..., head_size:],
        query_start_loc=starts,
        seq_lens=torch.tensor([*lengths, 2**30, 7], dtype=torch.int32),
        block_table=table,
        causal=causal,
    )


def make_scoring(
    num_heads: int,
    *,
    soft_cap: float | None = None,
    alibi: bool = False,
    window: int | None = None,
    sinks: bool = False,
    seed: int = 0,
) -> Scoring:
    """Rules with slopes and sinks for as many heads."""
    generator = torch.Generator().manual_seed(seed)
    return Scoring(
        soft_cap,
        torch.rand(num_heads, generator=generator) if alibi else None,
        window,
        3 * torch.randn(num_heads, generator=generator) if sinks else None,
    )


def forget(batch: Batch) -> Batch:
    """What a window hides from a row's new tokens becomes NaN, and garbage in the block table."""
    window = batch.scoring.sliding_window
    if window is None:
        return batch
    keys, values, table = batch.key_cache.clone(), batch.value_cache.clone(), batch.block_table.clone()
    block_size = keys.shape[1]
    for row, new in enumerate(ints(batch.query_start_loc.diff())):
        hidden = max(0, int(batch.seq_lens[row]) - max(new, 1) - window + 1)
        block = int(table[row, hidden // block_size])
        if hidden % block_size:
            keys[block, : hidden % block_size] = values[block, : hidden % block_size] = math.nan
        table[row, : hidden // block_size] = -(2**30)
    return replace(batch, key_cache=keys, value_cache=values, block_table=table)


def assert_near_exact(batch: Batch, kernel: PagedAttention) -> None:
    """Result and log-sum-exps are within the tolerance that the reference's own error derives."""
    wide = batch.wide()
    found = compare(batch.run(kernel), batch.run(reference.paged_attention), wide.run(reference.paged_attention))
    assert found.passed, str(found)
    sums, working, exact = (
        batch.sums(kernel),
        batch.sums(reference.paged_attention),
        wide.sums(reference.paged_attention),
    )
    blind = exact.isinf()
    assert torch.equal(sums.isinf() & (sums < 0), blind)
    found = compare(sums.masked_fill(blind, 0.0), working.masked_fill(blind, 0.0), exact.masked_fill(blind, 0.0))
    assert found.passed, f"log-sum-exps: {found}"


EDGES = [0, 1, 2, 6, 7, 8, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300]


@st.composite
def scorings(draw: st.DrawFn, num_heads: int) -> Scoring:
    """Any rules."""
    return make_scoring(
        num_heads,
        soft_cap=draw(st.sampled_from([None, None, 3.0, 50.0])),
        alibi=draw(st.booleans()),
        window=draw(st.sampled_from([None, None, 1, 2, 5, 16, 63, 64, 65, 100, 256, 257, 2**40])),
        sinks=draw(st.booleans()),
        seed=draw(st.integers(0, 3)),
    )


@st.composite
def batches(draw: st.DrawFn, *, plain: bool = False) -> Batch:
    """Any batch, with any rules or with none."""
    rows = draw(st.lists(st.tuples(st.sampled_from([0, 1, 1, *EDGES[:14]]), st.sampled_from(EDGES)), max_size=5))
    batch = make_batch(
        rows,
        block_size=draw(st.sampled_from([1, 7, 16, 64])),
        num_kv_heads=draw(st.integers(1, 3)),
        group=draw(st.sampled_from([1, 2, 3, 4, 5, 8])),
        head_size=draw(st.sampled_from([1, 5, 8, 20, 33, 64, 80, 96, 128, 256])),
        value_head_size=draw(st.sampled_from([None, None, 16, 19, 64])),
        dtype=draw(st.sampled_from(DTYPES)),
        causal=draw(st.booleans()),
        padding_tokens=draw(st.sampled_from([0, 3])),
        seed=draw(st.integers(0, 9)),
    )
    return batch if plain else forget(replace(batch, scoring=draw(scorings(batch.query.shape[1]))))
