"""The Triton kernels, in processes of their own, and the rule by which they are chosen."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from genericbuilders.backends.paged import kernel_support
from genericbuilders.backends.triton import TRITON
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.portable import paged_attention
from genericbuilders.kernels.select import AttentionKernels, find_kernels, select_kernels
from genericbuilders.kernels.triton import find
from genericbuilders.kernels.triton.attention import TritonAttention
from genericbuilders.specs import FullAttentionSpec, KVQuantMode, SinkFullAttentionSpec
from tests.kernels.paged_batches import make_batch

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
HERE = Path(__file__).parent
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


def run(file: str, environment: dict[str, str]) -> None:
    """Run a file of tests in a process of its own."""
    rest = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / file)],
        cwd=HERE.parent.parent,
        env=rest | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@needs_triton
def test_in_the_interpreter() -> None:
    run("triton_interpreted.py", {"TRITON_INTERPRET": "1"})


@needs_triton
def test_compiled_for_other_devices(tmp_path: Path) -> None:
    run("triton_compiled.py", {"TRITON_CACHE_DIR": str(tmp_path)})


@pytest.mark.skipif(torch.cuda.is_available(), reason="it would measure")
def test_the_script_for_a_gpu_says_what_it_would_do_without_one() -> None:
    script = HERE.parent / "bench" / "gpu_attention.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("no CUDA device: it would check the Triton and the portable kernels")
    assert done.stdout.count("\n") == 1


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(find, "installed_triton", lambda: "3.7.1")


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "installed_triton", lambda: Unavailable("triton is not installed"))


@pytest.mark.usefixtures("installed")
def test_where_it_is_installed_cuda_devices_run_it_and_cpus_do_not() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert select_kernels(CUDA, dtype).name == "triton"
        assert select_kernels(CPU, dtype).name != "triton"
    assert select_kernels(CUDA, torch.float64).name == "portable"
    found = find_kernels("triton", CUDA, torch.float64)
    assert isinstance(found, Unavailable)
    assert found.reason.endswith("take torch.float32, torch.bfloat16, torch.float16, not torch.float64")
    with pytest.raises(
        ValueError, match=r"'triton' are not available: Triton's kernels run on CUDA devices, not on cpu"
    ):
        select_kernels(CPU, torch.float32, "triton")


@pytest.mark.usefixtures("installed")
def test_the_interpreter_makes_a_cpu_one_of_its_devices_if_asked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert isinstance(find_kernels("triton", CPU, torch.float32), AttentionKernels)
    assert select_kernels(CPU, torch.float32).name != "triton"


@pytest.mark.usefixtures("missing")
def test_where_it_is_missing_the_portable_kernels_run() -> None:
    assert select_kernels(CUDA, torch.bfloat16).name == "portable"
    found = find_kernels("triton", CUDA, torch.bfloat16)
    assert isinstance(found, Unavailable)
    assert found.reason == "triton is not installed"


def test_kernels_that_cannot_be_made_leave_the_portable_ones() -> None:
    broken = TritonAttention(lambda: Unavailable("broken"))
    batch = make_batch([(1, 20), (3, 30)])
    assert torch.equal(batch.run(broken.paged_attention), batch.run(paged_attention))


def make_spec(head_size: int = 64, dtype: torch.dtype = torch.bfloat16) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=head_size, dtype=dtype)


@pytest.mark.usefixtures("installed")
def test_graphs_of_any_batch_where_nothing_is_read_back() -> None:
    config = EngineConfig(max_model_len=64)
    single = AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE
    assert TRITON.cudagraph_support(config, make_spec()) is AttentionCGSupport.ALWAYS
    # Larger heads and wider types run by the portable kernels.
    assert TRITON.cudagraph_support(config, make_spec(320)) is single
    assert TRITON.cudagraph_support(config, make_spec(dtype=torch.float64)) is single
    quantised = FullAttentionSpec(
        block_size=16, num_kv_heads=2, head_size=64, dtype=torch.int8, kv_quant_mode=KVQuantMode.INT8_PER_TOKEN_HEAD
    )
    assert kernel_support(quantised) is AttentionCGSupport.NEVER


@pytest.mark.usefixtures("missing")
def test_graphs_of_decodes_without_it() -> None:
    config = EngineConfig(max_model_len=64)
    assert TRITON.cudagraph_support(config, make_spec()) is AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE


def test_what_the_back_end_would_compute_wrongly_is_refused() -> None:
    heads = AttentionLayerConfig(4, 2, 64, 0.125)
    config = EngineConfig(max_model_len=64, layers={"l0": heads})
    sink = SinkFullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32, sink_len=4)
    with pytest.raises(ValueError, match=r"layers \['l0'\] have a SinkFullAttentionSpec.*triton serves plain keys"):
        TRITON.bind(sink, [TRITON.layer("l0", heads)], config, CPU)
    with pytest.raises(ValueError, match=r"layer 'l0' has 2 key-value heads of size 64.*made for 2 of size 80"):
        TRITON.bind(make_spec(80), [TRITON.layer("l0", heads)], config, CPU)
