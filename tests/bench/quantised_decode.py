"""Decoding over quantised caches: the compiled attention beside that over a plain cache of the same tokens, in one run.

The sides take turns, a sample each; figures are medians over the rounds.

    PYTHONPATH=tests/support python tests/bench/quantised_decode.py [--rounds 5] [--threads 1] [--portable]
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
from collections.abc import Callable

import torch
from decode_attention import prepare
from decode_inputs import Shape, make_inputs, milliseconds
from quantised_caches import make_codec
from torch import Tensor

from genericbuilders.kernels.quant.formats import FORMATS
from genericbuilders.kernels.quant.select import select_quantised_kernels
from genericbuilders.kernels.quant.slots import write_slots
from genericbuilders.specs import KVQuantMode

CPU = torch.device("cpu")


def prepare_quantised(shape: Shape, mode: KVQuantMode, kernels: str) -> Callable[[], Tensor]:
    """The call of attention on a filled quantised cache."""
    inputs, codec = make_inputs(shape), make_codec(mode, shape.head_size)
    cache = torch.zeros(
        inputs.block_table.numel(), shape.num_kv_heads, shape.block_size, codec.slot.slot_bytes, dtype=torch.uint8
    )
    write_slots(inputs.keys, inputs.values, cache, inputs.slot_mapping, codec)
    return functools.partial(
        select_quantised_kernels(CPU, torch.float32, kernels).paged_attention,
        inputs.query,
        cache,
        codec,
        query_start_loc=torch.arange(shape.num_reqs + 1, dtype=torch.int32),
        seq_lens=torch.full((shape.num_reqs,), shape.context, dtype=torch.int32),
        block_table=inputs.block_table,
        scale=1 / math.sqrt(shape.head_size),
        causal=True,
        max_query_len=1,
        max_seq_len=shape.context,
    )


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of one sample")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--heads", type=int, nargs=2, default=[9, 3], help="query heads and key-value heads")
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--portable", action="store_true", help="the portable kernel, too")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    heads, kv_heads = arguments.heads
    shape = Shape(
        "float32", arguments.requests, arguments.context, heads, kv_heads, arguments.head_size, arguments.block_size, 0
    )
    print(f"torch {torch.__version__}, {arguments.threads} threads, {shape}; medians of {arguments.rounds} rounds\n")
    calls = {"float32": prepare(shape), "bfloat16": prepare(shape._replace(dtype="bfloat16"))}
    for mode in FORMATS:
        calls[mode.name.lower()] = prepare_quantised(shape, mode, "native")
        if arguments.portable:
            calls[f"{mode.name.lower()}, portable"] = prepare_quantised(shape, mode, "portable")
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(arguments.rounds):
        for name, call in calls.items():
            samples[name].append(milliseconds(call, arguments.seconds))
    print("| cache | ms | cache / float32 |")
    print("|---|---|---|")
    for name, times in samples.items():
        ratio = statistics.median(mine / plain for mine, plain in zip(times, samples["float32"], strict=True))
        print(f"| {name} | {statistics.median(times):.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
