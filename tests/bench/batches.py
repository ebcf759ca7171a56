"""The batches that builders are timed on, and the clock. Needs torch alone, since a peer's environment runs it, too."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["BATCHES", "BLOCK_SIZE", "Batch", "fastest", "fingerprint", "make_batch", "microseconds"]

BLOCK_SIZE = 16
DECODE, PREFILL = (1, 1000), (512, 512)
# Each row's new tokens and the length of its sequence behind them.
BATCHES: Mapping[str, Sequence[tuple[int, int]]] = {
    "256 decodes at 1,000 tokens": [DECODE] * 256,
    "8 prefills of 512, 56 decodes at 1,000": [DECODE] * 56 + [PREFILL] * 8,
    "1,024 decodes at 1,000 tokens": [DECODE] * 1024,
}


@dataclass(frozen=True)
class Batch:
    """A batch as tensors on the host; the fields are those of both sides' ``CommonAttentionMetadata``."""

    query_start_loc: Tensor
    seq_lens: Tensor
    num_computed_tokens: Tensor
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    block_table: Tensor
    slot_mapping: Tensor


def make_batch(rows: Sequence[tuple[int, int]]) -> Batch:
    """The batch of ``rows``, each with blocks of its own, from block 1 on."""
    query_lens = torch.tensor([query_len for query_len, _ in rows], dtype=torch.int32)
    seq_lens = torch.tensor([seq_len for _, seq_len in rows], dtype=torch.int32)
    starts = torch.zeros(len(rows) + 1, dtype=torch.int32)
    starts[1:] = query_lens.cumsum(0)
    columns = -(-int(seq_lens.max()) // BLOCK_SIZE)
    block_table = torch.arange(1, len(rows) * columns + 1, dtype=torch.int32).view(len(rows), columns)
    computed = seq_lens - query_lens
    row_of_token = torch.repeat_interleave(torch.arange(len(rows)), query_lens)
    positions = torch.arange(len(row_of_token)) - starts[row_of_token] + computed[row_of_token]
    slots = block_table[row_of_token, positions // BLOCK_SIZE].long() * BLOCK_SIZE + positions % BLOCK_SIZE
    return Batch(
        query_start_loc=starts,
        seq_lens=seq_lens,
        num_computed_tokens=computed,
        num_reqs=len(rows),
        num_actual_tokens=int(starts[-1]),
        max_query_len=int(query_lens.max()),
        max_seq_len=int(seq_lens.max()),
        block_table=block_table,
        slot_mapping=slots,
    )


def fingerprint(lengths: Sequence[int], tensors: Sequence[Tensor]) -> list[int]:
    """Numbers that differ if two sides did not build the same metadata."""
    weighted = [int((tensor.flatten().long() * torch.arange(1, tensor.numel() + 1)).sum()) for tensor in tensors]
    return [*lengths, *weighted]


def fastest(call: Callable[[], object], seconds: float) -> float:
    """The time of the fastest call within ``seconds``, at least two, in milliseconds."""
    best, end, count = float("inf"), time.perf_counter() + seconds, 0
    while count < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        count += 1
    return best * 1e3


def microseconds(build: Callable[[], object], iterations: int) -> float:
    """The time of one ``build()``, over ``iterations`` in a row without the garbage collector."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(iterations):
            build()
        return (time.perf_counter() - start) / iterations * 1e6
    finally:
        if collecting:
            gc.enable()
