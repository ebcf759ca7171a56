"""Which state-space kernels run where; packages that bring some are neither imported to be listed nor when chosen."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from genericbuilders.kernels.native import Unavailable, native_library
from genericbuilders.kernels.packages import find_package, imported_once
from genericbuilders.kernels.state import portable_conv, portable_scan, portable_selective
from genericbuilders.kernels.state.select import (
    STATE_DTYPES,
    STATE_KERNEL_NAMES,
    StateKernels,
    find_state_kernels,
    installed_kernels,
    select_state_kernels,
)
from tests.kernels.state.rows_strategy import make_rows
from tests.kernels.state.scan_cases import ScanKernels, ScanSizes, judge, make_inputs, random_states

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
FLOAT = (torch.float32,)
PACKAGES = {
    "fla-core": ("0.6.0", ["fla"]),
    "causal-conv1d": ("1.7.0", ["causal_conv1d", "causal_conv1d_cuda"]),
    "mamba-ssm": ("2.3.2.post1", ["mamba_ssm", "selective_scan_cuda"]),
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which packages are installed; what is imported of them raises."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    installed_kernels.cache_clear()
    yield tmp_path
    installed_kernels.cache_clear()
    for _, modules in PACKAGES.values():
        for module in modules:
            sys.modules.pop(module, None)


def install(site: Path, name: str, version: str | None = None) -> None:
    found, modules = PACKAGES[name]
    for module in modules:
        (site / module).mkdir()
        (site / module / "__init__.py").write_text("raise ImportError('undefined symbol: torch')\n")
    info = site / f"{name.replace('-', '_')}-{version or found}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version or found}\n")
    importlib.invalidate_caches()


def chosen() -> StateKernels:
    installed_kernels.cache_clear()
    return select_state_kernels(CUDA, FLOAT)


def portable(kernels: StateKernels) -> list[bool]:
    """Whether the convolution, the selective scan, the decaying scan and the delta rule are the portable ones."""
    return [
        kernels.causal_conv is portable_conv.causal_conv,
        kernels.selective_scan is portable_selective.selective_scan,
        kernels.decay_scan is portable_scan.decay_scan,
        kernels.delta_scan is portable_scan.delta_scan,
    ]


def test_nothing_is_installed(site: Path) -> None:
    assert chosen().name == "portable"
    found = find_state_kernels("installed", CUDA, FLOAT)
    assert isinstance(found, Unavailable)
    for name in PACKAGES:
        assert f"{name} is not installed" in found.reason
    with pytest.raises(ValueError, match="the kernels 'installed' are not available: fla-core is not installed"):
        select_state_kernels(CUDA, FLOAT, "installed")


@pytest.mark.parametrize("name", ["portable", "reference"])
def test_states_in_dtypes_that_no_kernel_has(name: str) -> None:
    for dtype in (torch.float8_e4m3fn, torch.int8):
        with pytest.raises(
            ValueError, match=rf"{name}' are not available: they keep states in .*float64, not {dtype}$"
        ):
            select_state_kernels(CPU, (torch.float32, dtype), name)
        with pytest.raises(ValueError, match=f"not {dtype}$"):
            select_state_kernels(CPU, (dtype,))


@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("dtype", STATE_DTYPES)
def test_every_dtype_that_is_taken_runs(dtype: torch.dtype, delta: bool) -> None:
    sizes, rows = ScanSizes(groups=1, heads=2, value=5, key=3), make_rows([[2], [1]], [1, 0], [[1], [2]])
    kernels = select_state_kernels(CPU, (dtype,))
    inputs = make_inputs(3, sizes, delta=delta)
    judge(ScanKernels(kernels.decay_scan, kernels.delta_scan), inputs, random_states(3, sizes, dtype), rows)


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("fla-core", [True, True, False, False]),
        ("causal-conv1d", [False, True, True, True]),
        ("mamba-ssm", [True, False, True, True]),
    ],
)
def test_one_package_is_installed(site: Path, name: str, left: list[bool]) -> None:
    install(site, name)
    kernels = chosen()
    assert (kernels.name, portable(kernels)) == ("installed", left)
    assert not any(module in sys.modules for module in PACKAGES[name][1])
    assert select_state_kernels(CUDA, FLOAT) is kernels


def test_all_packages_are_installed(site: Path) -> None:
    for name in PACKAGES:
        install(site, name)
    assert portable(chosen()) == [False] * 4


def test_a_compiled_module_is_missing(site: Path) -> None:
    """A source distribution that was installed without its extension."""
    install(site, "causal-conv1d")
    (site / "causal_conv1d_cuda" / "__init__.py").unlink()
    (site / "causal_conv1d_cuda").rmdir()
    importlib.invalidate_caches()
    assert chosen().name == "portable"
    found = installed_kernels()
    assert isinstance(found, Unavailable)
    assert "causal-conv1d is not installed: there is no module causal_conv1d_cuda" in found.reason


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("0.5.0", "fla-core is of version 0.5.0; 0.6 is the first that can be used"),
        ("0.6.0", None),
        ("0.10.1", None),
        ("1.0", None),
        ("main", "fla-core is of version 'main', which does not begin with two numbers"),
    ],
)
def test_versions(site: Path, version: str, told: str | None) -> None:
    install(site, "fla-core", version)
    found = find_package("fla", "fla-core", (0, 6))
    assert found == version if told is None else found == Unavailable(told)


def test_a_package_without_metadata(site: Path) -> None:
    (site / "fla").mkdir()
    (site / "fla" / "__init__.py").touch()
    importlib.invalidate_caches()
    found = find_package("fla", "fla-core", (0, 6))
    assert found == Unavailable("there is a module fla, but no metadata of fla-core that say its version")


@pytest.mark.parametrize("delta", [False, True], ids=["decay", "delta"])
def test_a_broken_package_is_told_of_once(site: Path, delta: bool) -> None:
    install(site, "fla-core")
    kernels = chosen()
    scans = ScanKernels(kernels.decay_scan, kernels.delta_scan)
    sizes, rows = ScanSizes(1, 2, 5, 3), make_rows([[3]], [1], [[2]])
    with pytest.warns(
        RuntimeWarning, match="fla-core is installed, but cannot be imported: ImportError: undefined sym"
    ):
        judge(scans, make_inputs(3, sizes, delta=delta), random_states(3, sizes), rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        judge(scans, make_inputs(3, sizes, delta=delta), random_states(3, sizes), rows)


def test_an_import_is_tried_once() -> None:
    tried = list[int]()

    def load() -> str:
        tried.append(len(tried))
        return "functions"

    loaded = imported_once("fla-core", load)
    assert not tried
    assert [loaded(), loaded()] == ["functions", "functions"]
    assert tried == [0]


def test_packages_are_for_cuda(site: Path) -> None:
    install(site, "fla-core")
    installed_kernels.cache_clear()
    on_cpu = select_state_kernels(CPU, FLOAT)
    assert on_cpu.name == ("portable" if isinstance(native_library(), Unavailable) else "native")
    found = find_state_kernels("installed", CPU, FLOAT)
    assert found == Unavailable("the kernels of other packages run on CUDA devices, not on cpu")


def test_states_wider_than_float32(site: Path) -> None:
    install(site, "fla-core")
    installed_kernels.cache_clear()
    assert select_state_kernels(CUDA, (torch.float32, torch.float64)).name == "portable"
    found = find_state_kernels("installed", CUDA, (torch.float64,))
    assert isinstance(found, Unavailable)
    assert found.reason.endswith("take torch.float32, torch.bfloat16, torch.float16, not torch.float64")


def test_names() -> None:
    for name in STATE_KERNEL_NAMES:
        assert isinstance(find_state_kernels(name, CPU, FLOAT), StateKernels | Unavailable)
    with pytest.raises(ValueError, match="no kernels called 'fast'; there are installed, native, portable, reference"):
        find_state_kernels("fast", CPU, FLOAT)
