"""Check and time attention on a GPU: every kernel against the reference, and the Triton ones against the card.

    python tests/bench/gpu_attention.py

Takes no arguments, and a few minutes. Kernels are judged by the tolerance that the reference's own error derives. The
card's copy bandwidth and its rate of bfloat16 matrix products are measured in the same run, since neither is what its
data sheet says. Decode's bytes are the keys and values of all requests, read once; prefill's operations are the two
matrix products over the keys that the causal mask lets through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from torch import Tensor

from genericbuilders.kernels import reference
from genericbuilders.kernels.scoring import PLAIN, Scoring
from genericbuilders.kernels.select import AttentionKernels, Unavailable, find_kernels
from genericbuilders.kernels.tolerance import compare

__all__ = ["main"]

WITHOUT = (
    "no CUDA device: it would check the Triton and the portable kernels against the reference, and measure decode's "
    "bytes/s against the card's copy bandwidth (aim: 85 %) and prefill's FLOP/s against its bfloat16 matrix rate (aim: "
    "60 %)"
)
DECODE_AIM, PREFILL_AIM = 0.85, 0.60
BLOCK_SIZE = 16
ROUNDS = 20


@dataclass(frozen=True)
class Shape:
    """Heads of a layer."""

    num_heads: int
    num_kv_heads: int
    head_size: int


@dataclass(frozen=True)
class Batch:
    """A batch over a paged cache, on the device."""

    query: Tensor
    keys: Tensor
    values: Tensor
    starts: Tensor
    lengths: Tensor
    table: Tensor
    max_query_len: int
    max_seq_len: int

    def run(self, kernels: AttentionKernels, scoring: Scoring = PLAIN, causal: bool = True) -> Tensor:
        """Attend."""
        return kernels.paged_attention(
            self.query,
            self.keys,
            self.values,
            query_start_loc=self.starts,
            seq_lens=self.lengths,
            block_table=self.table,
            scale=1 / math.sqrt(self.query.shape[2]),
            causal=causal,
            max_query_len=self.max_query_len,
            max_seq_len=self.max_seq_len,
            scoring=scoring,
        )

    def expect(self, dtype: torch.dtype, scoring: Scoring, causal: bool) -> Tensor:
        """What the reference makes of it in a dtype."""
        return reference.paged_attention(
            self.query.to(dtype),
            self.keys.to(dtype),
            self.values.to(dtype),
            query_start_loc=self.starts,
            seq_lens=self.lengths,
            block_table=self.table,
            scale=1 / math.sqrt(self.query.shape[2]),
            causal=causal,
            scoring=scoring,
        )


def make_batch(
    rows: Sequence[tuple[int, int]], shape: Shape, dtype: torch.dtype, block_size: int = BLOCK_SIZE
) -> Batch:
    """Rows of new tokens and tokens before them, whose blocks lie in no order."""
    device, lengths = torch.device("cuda"), [new + old for new, old in rows]
    needed = [-(-length // block_size) for length in lengths]
    generator = torch.Generator(device).manual_seed(0)
    pool = torch.randn(
        1 + sum(needed), 2, shape.num_kv_heads, block_size, shape.head_size,
        generator=generator, device=device, dtype=dtype,
    )  # fmt: skip
    order = 1 + torch.randperm(sum(needed), generator=generator, device=device)
    table = torch.zeros(len(rows), max(needed), dtype=torch.int32, device=device)
    used = 0
    for row, count in enumerate(needed):
        table[row, :count] = order[used : used + count].int()
        used += count
    tokens = sum(new for new, _ in rows)
    query = torch.randn(tokens, shape.num_heads, shape.head_size, generator=generator, device=device, dtype=dtype)
    starts = torch.tensor([0, *(new for new, _ in rows)], device=device).cumsum(0).int()
    return Batch(
        query,
        pool[:, 0].transpose(1, 2),
        pool[:, 1].transpose(1, 2),
        starts,
        torch.tensor(lengths, dtype=torch.int32, device=device),
        table,
        max(new for new, _ in rows),
        max(lengths),
    )


def seconds(run: Callable[[], object]) -> float:
    """The time of one call, the median of rounds; what is cached on the card is not flushed."""
    for _ in range(5):
        run()
    samples: list[float] = []
    for _ in range(ROUNDS):
        start, end = torch.Event("cuda", enable_timing=True), torch.Event("cuda", enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        samples.append(start.elapsed_time(end) / 1e3)
    return median(samples)


def check(kernels: AttentionKernels) -> tuple[int, list[str]]:
    """How many batches were compared with the reference, and what was outside of tolerance."""
    rows = [(1, 700), (33, 200), (0, 5), (1, 0), (7, 130), (1, 63)]
    failures: list[str] = []
    count = 0
    generator = torch.Generator("cuda").manual_seed(1)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for head_size in (64, 80, 128, 192, 256):
            for group, block_size in ((1, 16), (4, 32), (5, 64)):
                shape = Shape(2 * group, 2, head_size)
                batch = make_batch(rows, shape, dtype, block_size)
                slopes = torch.rand(2 * group, generator=generator, device="cuda")
                for scoring in (PLAIN, Scoring(30.0, slopes, 100, torch.randn(2 * group, device="cuda"))):
                    for causal in (True, False):
                        working, exact = (batch.expect(kind, scoring, causal) for kind in (dtype, torch.float64))
                        found = compare(batch.run(kernels, scoring, causal), working, exact)
                        count += 1
                        if not found.passed:
                            rules = "plain" if scoring is PLAIN else "all rules"
                            where = f"{dtype}, heads of {head_size}, group {group}, {rules}, causal {causal}"
                            failures.append(f"{kernels.name}: {where}: {found}")
    return count, failures


def check_graph(kernels: AttentionKernels) -> list[str]:
    """Whether a graph, captured with one batch, computes another one of as many rows and tokens."""
    shape, dtype = Shape(8, 2, 128), torch.bfloat16
    batch = make_batch([(4, 600), (4, 600), (4, 600), (4, 600)], shape, dtype)
    batch.run(kernels)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = batch.run(kernels)
    # Two decodes, a prefill, and a row that padding added.
    batch.starts.copy_(torch.tensor([0, 1, 2, 16, 16]))
    batch.lengths.copy_(torch.tensor([5, 604, 99, 0]))
    graph.replay()
    working, exact = (batch.expect(kind, PLAIN, True) for kind in (dtype, torch.float64))
    found = compare(out, working, exact)
    return [] if found.passed else [f"{kernels.name}: replay of a graph: {found}"]


def copy_bandwidth() -> float:
    """Bytes/s that a copy reads and writes."""
    source = torch.empty(2**31, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / seconds(lambda: target.copy_(source))


def matrix_rate() -> float:
    """FLOP/s of a product of bfloat16 matrices."""
    size = 8192
    left, right = torch.randn(2, size, size, device="cuda", dtype=torch.bfloat16).unbind()
    return 2 * size**3 / seconds(lambda: left @ right)


def measure(kernels: AttentionKernels) -> list[str]:
    """The table's rows."""
    copied, multiplied = copy_bandwidth(), matrix_rate()
    lines: list[str] = []
    for shape in (Shape(32, 8, 128), Shape(64, 8, 64), Shape(16, 2, 256)):
        heads = f"{shape.num_heads}/{shape.num_kv_heads} heads of {shape.head_size}"
        for requests, context in ((256, 4096), (16, 8192), (1, 131072)):
            batch = make_batch([(1, context - 1)] * requests, shape, torch.bfloat16)
            read = 2 * requests * context * shape.num_kv_heads * shape.head_size * batch.query.element_size()
            took = seconds(partial(batch.run, kernels))
            reached = read / took / copied
            lines.append(
                f"| decode | {heads} | {requests:,} x {context:,} | {took * 1e6:,.0f} us | {read / took / 1e9:,.0f} GB/s | "
                f"{copied / 1e9:,.0f} GB/s | {reached:.0%} | {'met' if reached >= DECODE_AIM else 'missed'} |"
            )
        for requests, tokens in ((1, 16384), (8, 4096), (64, 512)):
            batch = make_batch([(tokens, 0)] * requests, shape, torch.bfloat16)
            work = 4 * requests * shape.num_heads * shape.head_size * tokens * (tokens + 1) // 2
            took = seconds(partial(batch.run, kernels))
            reached = work / took / multiplied
            lines.append(
                f"| prefill | {heads} | {requests:,} x {tokens:,} | {took * 1e6:,.0f} us | {work / took / 1e12:,.0f} TFLOP/s "
                f"| {multiplied / 1e12:,.0f} TFLOP/s | {reached:.0%} | {'met' if reached >= PREFILL_AIM else 'missed'} |"
            )
    return lines


def main() -> int:
    """Check, measure, and print a table; 1 if a result was wrong."""
    if not torch.cuda.is_available():
        print(WITHOUT)
        return 0
    wrong = 0
    device = torch.device("cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    for name in ("portable", "triton"):
        kernels = find_kernels(name, device, torch.bfloat16)
        if isinstance(kernels, Unavailable):
            print(f"{name}: {kernels.reason}")
            continue
        count, failures = check(kernels)
        if name == "triton":
            count, failures = count + 1, failures + check_graph(kernels)
        wrong += len(failures)
        print(f"{name}: {count - len(failures)} of {count} batches within tolerance of the reference")
        print(*failures, sep="\n")
    kernels = find_kernels("triton", device, torch.bfloat16)
    if isinstance(kernels, AttentionKernels):
        print("| kernel | layer, bfloat16 | batch | time | reached | the card | share | aim |")
        print("|" + "---|" * 8)
        print(*measure(kernels), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
