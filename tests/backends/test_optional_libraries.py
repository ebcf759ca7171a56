"""Listing, choosing and binding back ends imports none of the libraries that they may run on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LIBRARIES = {
    "flashinfer": "flashinfer-python",
    "triton": "triton",
    "hpc": "hpc-ops",
    "vllm": "vllm",
    "transformers": "transformers",
    "fla": "flash-linear-attention",
    "mamba_ssm": "mamba-ssm",
    "causal_conv1d": "causal-conv1d",
}
PROGRAM = """
import sys
import torch
LIBRARIES = set(sys.argv[1:])
from genericbuilders.backends import BUILT_IN
from genericbuilders.backends.chunked_local import chunked_local
from genericbuilders.backends.flashinfer import FLASHINFER
from genericbuilders.backends.hpc import HPC
from genericbuilders.backends.triton import TRITON
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.kernels.flashinfer_library import find_flashinfer
from genericbuilders.kernels.hpc import find_hpc
from genericbuilders.kernels.select import select_kernels
from genericbuilders.kernels.triton.find import find_triton
from genericbuilders.registry import Registry
from genericbuilders.specs import ChunkedLocalAttentionSpec, FullAttentionSpec

cuda = torch.device("cuda")
print(find_flashinfer(), find_triton(cuda), find_hpc(), select_kernels(cuda, torch.bfloat16).name)
spec = FullAttentionSpec(block_size=64, num_kv_heads=2, head_size=128, dtype=torch.bfloat16)
heads = AttentionLayerConfig(8, 2, 128, 128**-0.5)
config = EngineConfig(max_model_len=64, layers={"l0": heads})
for adapter in BUILT_IN:
    assert adapter.unavailable() is None, adapter
for adapter in (FLASHINFER, TRITON, HPC):
    Registry([adapter]).for_spec(spec, config=config)
    print(adapter.cudagraph_support(config, spec).name)
    adapter.bind(spec, [adapter.layer("l0", heads)], config, torch.device("cpu"))
chunk = ChunkedLocalAttentionSpec(
    block_size=64, num_kv_heads=2, head_size=128, dtype=torch.bfloat16, attention_chunk_size=64
)
heads = AttentionLayerConfig(8, 2, 128, 128**-0.5, attention_chunk_size=64)
config = EngineConfig(max_model_len=64, layers={"l0": heads})
for adapter in map(chunked_local, (FLASHINFER, TRITON, HPC)):
    adapter.bind(chunk, [adapter.layer("l0", heads)], config, torch.device("cpu"))
registry = Registry(BUILT_IN)
for adapter in BUILT_IN:
    assert registry.by_name(adapter.name) is adapter
# Each would have ended the program; what torch imports of its own accord would not.
assert not LIBRARIES & set(sys.modules), sorted(LIBRARIES & set(sys.modules))
"""


def test_none_is_imported(tmp_path: Path) -> None:
    """They are installed, as far as anyone can tell without an import, which would end the program."""
    for module, distribution in LIBRARIES.items():
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text(f"raise SystemExit('{module} was imported')\n")
        metadata = tmp_path / f"{distribution.replace('-', '_')}-9.0.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 9.0.0\n")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *LIBRARIES],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [
        *("9.0.0", "9.0.0", "9.0.0", "triton"),
        *("UNIFORM_SINGLE_TOKEN_DECODE", "ALWAYS", "UNIFORM_SINGLE_TOKEN_DECODE"),
    ]
