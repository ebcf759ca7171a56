"""The hook that other projects use: pre-commit takes its definition, and runs it on a project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOOKS = ROOT / ".pre-commit-hooks.yaml"
BUILDER = """from vllm.v1.attention.backend import AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import MambaSpec


class Meta:
    pass


class Mine(AttentionMetadataBuilder[Meta]):
    def __init__(self, kv_cache_spec: MambaSpec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
"""


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str]) -> Path:
    """A repository whose hook is the one that is shipped, run with what is installed here."""
    folder = tmp_path / "project"
    folder.mkdir()
    hook = HOOKS.read_text(encoding="utf-8").replace("language: python", "language: system")
    hook = re.sub(r"^ *(#|additional_dependencies).*\n", "", hook, flags=re.MULTILINE)
    hook = hook.replace("genericbuilders migrate --check", f"{sys.executable} -m genericbuilders.cli migrate --check")
    hooks = "".join(f"      {line}\n" for line in hook.splitlines())
    (folder / ".pre-commit-config.yaml").write_text(f"repos:\n  - repo: local\n    hooks:\n{hooks}", encoding="utf-8")
    environment.update(PRE_COMMIT_HOME=str(tmp_path / "cache"), GIT_CONFIG_GLOBAL=os.devnull)
    (folder / "other.py").write_text("x = 1\n", encoding="utf-8")
    git(folder, environment, "init", "-q")
    git(folder, environment, "add", ".")
    return folder


def git(folder: Path, environment: dict[str, str], *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True, capture_output=True)


def pre_commit(folder: Path, environment: dict[str, str], *arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", *map(str, arguments)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_the_definition_is_valid(environment: dict[str, str], tmp_path: Path) -> None:
    assert pre_commit(tmp_path, environment, "validate-manifest", HOOKS) == (0, "")


def test_it_stops_a_commit_that_brings_a_builder(project: Path, environment: dict[str, str]) -> None:
    code, told = pre_commit(project, environment, "run")
    assert code == 0, told
    (project / "mine.py").write_text(BUILDER, encoding="utf-8")
    git(project, environment, "add", ".")
    code, told = pre_commit(project, environment, "run")
    assert code == 1, told
    assert re.search(r"^mine\.py:9:\d+: [a-z-]+: .+$", told, re.MULTILINE)
    assert (project / "mine.py").read_text(encoding="utf-8") == BUILDER
