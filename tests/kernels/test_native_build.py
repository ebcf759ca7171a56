"""Compiling at first use: cached, shared with torch's threads, and a typed answer where it cannot be done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from genericbuilders.kernels.native import NativeKernels, Unavailable, native_kernels
from genericbuilders.kernels.native.build import BuildError, build_library, cache_folder
from genericbuilders.kernels.select import AttentionKernels, find_kernels, select_kernels

CPU = torch.device("cpu")


def test_switched_off_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENERICBUILDERS_NATIVE", "0")
    assert native_kernels() == Unavailable("switched off by GENERICBUILDERS_NATIVE=0")
    assert select_kernels(CPU, torch.float32).name == "portable"
    with pytest.raises(ValueError, match="switched off"):
        select_kernels(CPU, torch.float32, "native")


def test_cache_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "genericbuilders" / "native"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "genericbuilders" / "native"


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="install g\\+\\+ or set CXX"):
        build_library()


@pytest.mark.skipif(sys.platform != "linux", reason="a shell script stands for the compiler")
def test_a_failing_compiler_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'kernels.cpp: error: no such instruction' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BuildError, match="no such instruction"):
        build_library()
    assert not list(cache_folder().iterdir()), "nothing half-done is left"


@pytest.mark.skipif(os.getuid() == 0 if hasattr(os, "getuid") else True, reason="root may write anywhere")
def test_an_unwritable_cache_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BuildError, match="XDG_CACHE_HOME"):
        build_library()


def test_a_file_in_the_cache_folders_place_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not isinstance(native_kernels(), NativeKernels):
        pytest.skip("no compiler here")
    (tmp_path / "genericbuilders").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BuildError, match="XDG_CACHE_HOME"):
        build_library()


def test_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(find_kernels("reference", CPU, torch.float64), AttentionKernels)
    assert isinstance(found := find_kernels("native", torch.device("meta"), torch.float32), Unavailable)
    assert "not on meta" in found.reason
    assert isinstance(found := find_kernels("native", CPU, torch.float64), Unavailable)
    assert "not torch.float64" in found.reason
    assert select_kernels(CPU, torch.float64).name == "portable"
    with pytest.raises(ValueError, match="'fast'; there are native, triton, portable, reference"):
        find_kernels("fast", CPU, torch.float32)


PROGRAM = """
import torch
from genericbuilders.kernels.native import NativeKernels, native_kernels
kernels = native_kernels()
assert isinstance(kernels, NativeKernels), kernels
torch.set_num_threads(2)
torch.randn(512, 512) @ torch.randn(512, 512)
kernels.silu_and_mul(torch.randn(64, 4096))
with open("/proc/self/maps") as maps:
    print(len({line.split()[-1] for line in maps if "libgomp" in line or "libomp" in line or "libiomp" in line}))
print(kernels.path)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_threads_are_torchs_own() -> None:
    if not isinstance(native_kernels(), NativeKernels):
        pytest.skip("no compiler here")
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert answer.split()[0] == "1", "one OpenMP runtime"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_two_processes_at_once_compile_one_library(tmp_path: Path) -> None:
    if not isinstance(native_kernels(), NativeKernels):
        pytest.skip("no compiler here")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    running = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [process.communicate()[0].split() for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert answers[0] == answers[1]
    assert [file.name for file in (tmp_path / "genericbuilders" / "native").iterdir()] == [Path(answers[0][1]).name]
