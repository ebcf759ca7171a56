"""The whole way over the tree in miniature, with mypy alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import TypeIs

from typecheck.out_of_tree.checking import LANES, CheckerFailedError, Finding, find
from typecheck.out_of_tree.describe import describe
from typecheck.out_of_tree.designs import DESIGNS, WIDENED, Design
from typecheck.out_of_tree.packages import Unpacked
from typecheck.out_of_tree.study import Study, measure
from typecheck.toml import is_table

MYPY = [lane for lane in LANES if lane.checker.name == "mypy"]


def named(name: str) -> Design:
    return next(design for design in DESIGNS if design.name == name)


def dig(value: object, *keys: str) -> object:
    for key in keys:
        assert is_table(value)
        value = value[key]
    return value


def is_list(value: object) -> TypeIs[list[object]]:
    return isinstance(value, list)


def test_three_designs(tmp_path: Path, sources: list[Unpacked]) -> None:
    study = Study.prepare(sources, tmp_path / "work")
    assert study.files == (
        "vllm/v1/attention/backend.py",
        "vllm/v1/attention/backends/full.py",
        "vllm/v1/attention/backends/state.py",
        "plug/__init__.py",
        "plug/builders.py",
        "plug/runner.py",
    )
    assert dig(describe(study), "builders", "plug", "builders") == 3
    said: list[str] = []
    designs = [WIDENED, named("asserting"), named("generic-migrated-lookup")]
    widened, asserting, migrated = measure(study, designs, tmp_path / "work", said.append, MYPY)

    assert dig(widened, "checkers", "mypy", "summary", "in_tree", "new") == 0
    # The base's builders say MambaSpec where this base says AttentionSpec.
    assert dig(asserting, "checkers", "mypy", "summary", "out_of_tree", "new_at") == {"constructor": 1}
    errors = dig(asserting, "checkers", "mypy", "new", "errors")
    assert is_list(errors)
    assert any(dig(each, "at") == "plug/builders.py:11" for each in errors)
    # Two in tree and one outside say a narrow spec; a bare class no longer holds them.
    assert dig(migrated, "builders_rewritten") == 3
    assert dig(migrated, "checkers", "mypy", "builders", "in_tree", "sees_its_spec") == 2
    assert dig(widened, "checkers", "mypy", "builders", "in_tree", "sees_its_spec") == 1
    assert dig(migrated, "checkers", "mypy", "builders", "in_tree", "class_slot_refuses") == 2
    assert dig(widened, "checkers", "mypy", "builders", "in_tree", "class_slot_refuses") == 0
    assert dig(migrated, "checkers", "mypy", "summary", "in_tree", "new_at", "get_builder_cls") == 1
    assert dig(widened, "checkers", "mypy", "call_sites", "out_of_tree", "get_builder_cls") == {"Any": 1}
    assert dig(migrated, "hatches", "in_tree", "with_a_hatch") == 0
    assert dig(widened, "hatches", "in_tree", "with_a_hatch") == 2


def test_the_baseline_must_come_first(tmp_path: Path, sources: list[Unpacked]) -> None:
    study = Study.prepare(sources, tmp_path / "work")
    with pytest.raises(ValueError, match="first design must be the widened base"):
        next(measure(study, [named("generic")], tmp_path / "work", print))


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.checker.name)
def test_revealed_types_and_errors_come_out_the_same(tmp_path: Path, lane: object) -> None:
    chosen = next(each for each in LANES if each is lane)
    (tmp_path / "m.py").write_text(
        "def f(x):\n    y: int = ''\n    reveal_type(y)\n\n\nimport nowhere\n", encoding="utf-8"
    )
    found, version = find(chosen, tmp_path, ["m.py"], tmp_path / "cache")
    assert [(each.line, each.kind) for each in found] == [(2, "error"), (3, "reveal")]
    assert found[1] == Finding("m.py", 3, found[1].column, "", found[1].message, "reveal")
    assert found[1].message.endswith("int")
    assert version[0].isdigit()


def test_a_checker_that_stops_early_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def f(:\n", encoding="utf-8")
    with pytest.raises(CheckerFailedError, match="stopped before any other file"):
        find(MYPY[0], tmp_path, ["m.py"], tmp_path / "cache")
