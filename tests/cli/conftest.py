"""The tiny model's plug-in, installed for one test: in this process, and in those that a test starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer
from cli_plugin import make_model_folder
from typer.testing import CliRunner, Result

from genericbuilders.cli.app import app
from genericbuilders.plugins import ENTRY_POINT_GROUP

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model_folder(tmp_path / "model")


@pytest.fixture
def entry_points(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """What is installed; tests may change it."""
    found = [EntryPoint("tiny", "cli_plugin:PLUGIN", ENTRY_POINT_GROUP)]

    def installed(group: str) -> list[EntryPoint]:
        assert group == ENTRY_POINT_GROUP
        return found

    monkeypatch.setattr("genericbuilders.plugins.entry_points", installed)
    return found


@pytest.fixture
def invoke(entry_points: list[EntryPoint]) -> Callable[..., Result]:
    """Run a command in this process."""

    def run(*arguments: str | Path) -> Result:
        assert isinstance(app, typer.Typer)
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which the plug-in is installed."""
    site = tmp_path / "site"
    info = site / "tiny-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\ntiny = cli_plugin:PLUGIN\n", encoding="utf-8")
    paths = [site, ROOT, ROOT / "adapters", ROOT / "tests" / "support"]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONUNBUFFERED": ""}


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Run a command in a process of its own, which is ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "genericbuilders.cli", *map(str, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()
