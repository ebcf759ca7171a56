"""The time of the state-space kernels here: compiled, portable (chunked) and the per-token reference, in one run.

One row of 2,048 tokens, and 256 rows of one token, at the sizes of Mamba-2 130M (24 heads of 64, state 128), of Mamba 130M
(1,536 channels, state 16) and of a small Gated DeltaNet (16 heads of 64 by 64). Implementations take turns; figures are
medians over the rounds, in milliseconds.

    python tests/bench/state_kernels.py [--rounds 5] [--threads 2]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.state.select import STATE_KERNEL_NAMES, StateKernels, find_state_kernels

__all__ = ["main", "rows_of"]

CPU = torch.device("cpu")
CHUNK = 256
TOKENS, DECODES = 2048, 256
Run = Callable[[StateKernels], Tensor]
Prepare = Callable[[StateRows, int], Run]


def rows_of(num_rows: int, num_tokens: int, chunk: int) -> StateRows:
    """``num_rows`` rows of ``num_tokens`` tokens each, continuing states in blocks of their own."""
    per_row = -(-num_tokens // chunk)
    ends = torch.arange(1, per_row + 1).mul_(chunk).clamp_(max=num_tokens)
    starts = torch.arange(num_rows)[:, None] * num_tokens
    loc = torch.cat((torch.zeros(1, dtype=torch.int64), (starts + ends).flatten())).int()
    blocks = torch.arange(1, num_rows + 1, dtype=torch.int32)
    stores = torch.zeros(num_rows, per_row, dtype=torch.int32)
    stores[:, -1] = blocks
    return StateRows(
        num_rows * num_tokens,
        per_row,
        min(chunk, num_tokens),
        torch.arange(num_rows + 1, dtype=torch.int32) * num_tokens,
        blocks,
        torch.arange(num_rows + 1, dtype=torch.int32) * per_row,
        loc,
        stores.flatten(),
    )


def causal_conv(rows: StateRows, blocks: int) -> Run:
    """Mamba-2 130M's convolution."""
    x = torch.ones(rows.num_tokens, 1792)
    weight, bias, state = torch.ones(1792, 4), torch.ones(1792), torch.ones(blocks, 3, 1792)
    return lambda kernels: kernels.causal_conv(x, weight, bias, state, rows)


def selective_scan(rows: StateRows, blocks: int) -> Run:
    """Mamba 130M's scan."""
    x, b, a, d = (
        torch.ones(rows.num_tokens, 1536),
        torch.ones(rows.num_tokens, 16),
        -torch.ones(1536, 16),
        torch.ones(1536),
    )
    state = torch.ones(blocks, 1536, 16)
    return lambda kernels: kernels.selective_scan(x, x, a, b, b, d, state, rows)


def decay_scan(rows: StateRows, blocks: int) -> Run:
    """Mamba-2 130M's scan."""
    value, key = torch.ones(rows.num_tokens, 24, 64), torch.ones(rows.num_tokens, 1, 128)
    decay = torch.full((rows.num_tokens, 24), -0.1)
    state = torch.ones(blocks, 24, 64, 128)
    return lambda kernels: kernels.decay_scan(key, key, value, decay, state, rows)


def delta_scan(rows: StateRows, blocks: int) -> Run:
    """A Gated DeltaNet's rule."""
    value, decay = torch.ones(rows.num_tokens, 16, 64), torch.full((rows.num_tokens, 16), -0.1)
    key, beta, state = value / 8, decay.neg(), torch.ones(blocks, 16, 64, 64)
    return lambda kernels: kernels.delta_scan(key, key, value, decay, beta, state, rows)


CALLS: Mapping[str, Prepare] = {
    "causal_conv": causal_conv,
    "selective_scan": selective_scan,
    "decay_scan": decay_scan,
    "delta_scan": delta_scan,
}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    batches = {
        f"1 row of {TOKENS:,} tokens": rows_of(1, TOKENS, CHUNK),
        f"{DECODES} rows of 1 token": rows_of(DECODES, 1, CHUNK),
    }
    implementations: dict[str, StateKernels] = {}
    for name in STATE_KERNEL_NAMES[1:]:
        found = find_state_kernels(name, CPU, (torch.float32,))
        if isinstance(found, Unavailable):
            print(f"{name}: {found.reason}")
        else:
            implementations[name] = found
    print(f"torch {torch.__version__}, {arguments.threads} threads, medians of {arguments.rounds} rounds\n")
    print("| kernel | batch | " + " | ".join(implementations) + " | reference / fastest |")
    print("|" + "---|" * (3 + len(implementations)))
    with torch.inference_mode():
        for kernel, prepare in CALLS.items():
            for batch, rows in batches.items():
                run = prepare(rows, 1 + rows.num_rows)
                samples: dict[str, list[float]] = {name: [] for name in implementations}
                for _ in range(1 + arguments.rounds):
                    for name, kernels in implementations.items():
                        samples[name].append(_milliseconds(run, kernels))
                medians = {name: statistics.median(times[1:]) for name, times in samples.items()}
                shown = " | ".join(f"{median:.2f}" for median in medians.values())
                print(f"| {kernel} | {batch} | {shown} | {medians['reference'] / min(medians.values()):.1f} |")


def _milliseconds(run: Run, kernels: StateKernels) -> float:
    start = time.perf_counter()
    run(kernels)
    return (time.perf_counter() - start) * 1e3


if __name__ == "__main__":
    main()
