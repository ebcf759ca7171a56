"""What the entry points do, beside a made-up vLLM."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from genericbuilders_vllm.inside import plugin

REGISTRY = "vllm.v1.attention.backends.registry"
CPU = "vllm.platforms.cpu.CpuPlatform"


class Custom:
    """vLLM's ``AttentionBackendEnum.CUSTOM``: a name for a path."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def is_overridden(self) -> bool:
        return bool(self.paths)

    def get_path(self) -> str:
        return self.paths[-1]


@pytest.fixture
def custom(monkeypatch: pytest.MonkeyPatch) -> Custom:
    made = Custom()

    def register_backend(backend: Custom, path: str) -> None:
        backend.paths.append(path)

    _install(
        monkeypatch,
        REGISTRY,
        AttentionBackendEnum=type("Enum", (), {"CUSTOM": made}),
        register_backend=register_backend,
    )
    return made


def _install(monkeypatch: pytest.MonkeyPatch, name: str, **names: object) -> None:
    """A module ``name`` that has ``names``, and packages above it."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules:
            monkeypatch.setitem(sys.modules, path, ModuleType(path))
    for key, value in names.items():
        monkeypatch.setattr(sys.modules[name], key, value, raising=False)


def _install_platforms(
    monkeypatch: pytest.MonkeyPatch,
    detect: Callable[[], str | None],
    allowed: Sequence[str] | None = None,
    others: Sequence[str] = (),
) -> list[str]:
    """vLLM that detects a platform, with further platform plug-ins; returns what of ours is imported."""
    _install(monkeypatch, "vllm.platforms", cpu_platform_plugin=detect)
    _install(monkeypatch, "vllm", envs=type("Envs", (), {"VLLM_PLUGINS": allowed}))
    found = [
        EntryPoint("genericbuilders", "genericbuilders_vllm.inside.plugin:platform", "vllm.platform_plugins"),
        *(EntryPoint(name, f"{name}:register", "vllm.platform_plugins") for name in others),
    ]
    imported: list[str] = []

    def entry_points(group: str) -> list[EntryPoint]:
        return [point for point in found if point.group == group]

    monkeypatch.setattr(plugin, "entry_points", entry_points)
    monkeypatch.setattr(importlib, "import_module", imported.append)
    return imported


def test_a_path_is_registered_once(custom: Custom) -> None:
    plugin.register()
    plugin.register()
    assert custom.paths == [plugin.BACKEND_PATH]


def test_another_back_end_of_that_name_stays(custom: Custom, caplog: pytest.LogCaptureFixture) -> None:
    custom.paths.append("theirs.Backend")
    with caplog.at_level(logging.INFO):
        plugin.register()
    assert custom.paths == ["theirs.Backend"]
    assert "theirs.Backend" in caplog.text


def test_a_missing_library_is_a_named_warning(
    custom: Custom, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def find_spec(name: str) -> None:
        assert name == "genericbuilders"

    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    plugin.register()
    assert custom.paths == []
    assert [(each.name, each.levelname) for each in caplog.records] == [(plugin.__name__, "WARNING")]
    assert "pip install genericbuilders" in caplog.text


def test_another_vllm_is_a_named_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    _install(monkeypatch, REGISTRY)
    plugin.register()
    assert "cannot register its back end as CUSTOM: ImportError" in caplog.text


def test_the_cpu_platform_is_stood_in_for(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = _install_platforms(monkeypatch, lambda: CPU)
    assert plugin.platform() == plugin.PLATFORM_PATH
    assert imported == ["genericbuilders_vllm.inside.platform"]


@pytest.mark.parametrize("found", [None, "vllm.platforms.zen_cpu.ZenCpuPlatform"])
def test_other_platforms_are_left_alone(monkeypatch: pytest.MonkeyPatch, found: str | None) -> None:
    imported = _install_platforms(monkeypatch, lambda: found)
    assert plugin.platform() is None
    assert imported == []


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [(None, None), (["genericbuilders", "npu"], None), (["genericbuilders"], plugin.PLATFORM_PATH)],
)
def test_another_platform_plugin_goes_first(
    monkeypatch: pytest.MonkeyPatch, allowed: list[str] | None, expected: str | None
) -> None:
    _install_platforms(monkeypatch, lambda: CPU, allowed, others=["npu"])
    assert plugin.platform() == expected


def test_a_platform_that_cannot_be_made_is_a_named_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _install_platforms(monkeypatch, lambda: CPU)

    def import_module(name: str) -> None:
        raise TypeError(f"{name} does not fit")

    monkeypatch.setattr(importlib, "import_module", import_module)
    assert plugin.platform() is None
    assert [(each.name, each.levelname) for each in caplog.records] == [(plugin.__name__, "WARNING")]
    assert "cannot let the CPU platform select CUSTOM: TypeError" in caplog.text


def test_importing_it_imports_no_vllm() -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import genericbuilders_vllm.inside.plugin as p; "
        "assert 'vllm' not in sys.modules; p.register(); p.platform()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, ".", "adapters"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    # Without vLLM both say so, and no more.
    assert [line.split(":")[-1].strip() for line in done.stderr.splitlines()] == ["No module named 'vllm'"] * 2
