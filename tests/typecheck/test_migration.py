"""What the lane over released packages sees: every way in which a migration can go wrong is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from genericbuilders.checkers.fields import Record, read_json
from genericbuilders.migration.result import Outcome, Target
from typecheck.migration.checked import Checked, UnresolvedError, check_tree, differences
from typecheck.migration.copies import Migrated, MigratedClass, copy_sources, migrate_copy
from typecheck.migration.measure import Measured, faults
from typecheck.migration.page import render
from typecheck.out_of_tree.checking import Finding, Lane
from typecheck.out_of_tree.inventory import Builder, Tree, take_inventory
from typecheck.out_of_tree.packages import Package, Unpacked

BASE = "class AttentionMetadataBuilder:\n    pass\n"
MINE = "from vllm.v1.attention.backend import AttentionMetadataBuilder\n\n\nclass Mine(AttentionMetadataBuilder):\n    pass\n"
PACKAGE = Package("mine-vllm", "1.0", "mine")


@pytest.fixture
def source(tmp_path: Path) -> Unpacked:
    root = tmp_path / "cache"
    for name, text in {"a.py": MINE, "b.py": "x = 1\n", "__init__.py": ""}.items():
        (root / "mine").mkdir(parents=True, exist_ok=True)
        (root / "mine" / name).write_text(text, encoding="utf-8")
    return Unpacked(PACKAGE, root, "mine.whl", "0")


@pytest.fixture
def root(tmp_path: Path, source: Unpacked) -> Path:
    tree = tmp_path / "tree"
    copy_sources(tree, [source], {"vllm/v1/attention/backend.py": BASE})
    return tree


def builders(root: Path) -> list[Builder]:
    return take_inventory(Tree(root, ["vllm", "mine"])).builders


def report(changed: bool, left: list[str], outcome: str = "migrated", line: int = 4) -> str:
    findings = [{"line": line, "column": 1, "rule": "r", "message": text, "changes": False} for text in left]
    builder = {"name": "Mine", "line": line, "outcome": outcome, "spec": None, "evidence": None, "findings": findings}
    file = {"path": "mine/a.py", "changed": changed, "written": changed, "classes": [builder], "findings": []}
    return json.dumps({"files": [file], "failures": [], "rules": {"r": {"changes": 1, "left": len(left)}}})


def migrated(
    root: Path, source: Unpacked, patch: pytest.MonkeyPatch, first: str, second: str, act: Callable[[], object]
) -> Migrated:
    answers = [first, second]

    def command(folder: Path, module: str, target: Target, *options: str) -> Record:
        assert (folder, module) == (root, "mine")
        if options == ("--write",):
            act()
        return read_json(answers.pop(0))

    patch.setattr("typecheck.migration.copies._command", command)
    return migrate_copy(root, source, Target.GENERIC, builders(root))


def test_all_is_well(root: Path, source: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "mine" / "a.py"
    answers = (report(True, []), report(False, []))
    done = migrated(root, source, monkeypatch, *answers, lambda: path.write_text(MINE + "# new\n"))
    assert done.faults == ()
    assert (done.files, done.changed, done.count(Outcome.MIGRATED), done.rules) == (3, ("mine/a.py",), 1, {"r": (1, 0)})
    # The package itself is as it was.
    assert (source.root / "mine" / "a.py").read_text() == MINE


@pytest.mark.parametrize(
    ("first", "second", "name", "text", "fault"),
    [
        (report(True, []), report(False, []), "a.py", "class :\n", "no longer compiles: mine/a.py: invalid syntax"),
        (report(True, []), report(False, []), "b.py", "y\n", "changed though nothing is reported: mine/b.py"),
        (report(True, []), report(True, []), "a.py", "y\n", "changed by a second run: mine/a.py"),
        (report(True, [], line=9), report(False, []), "a.py", "y\n", "not in the report: mine/a.py:4: Mine"),
        (
            report(True, [], "refused"),
            report(False, []),
            "a.py",
            "y\n",
            "refused without a reason: mine/a.py:4: Mine",
        ),
    ],
)
def test_what_is_wrong_is_named(
    root: Path,
    source: Unpacked,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    second: str,
    name: str,
    text: str,
    fault: str,
) -> None:
    path = root / "mine" / name
    done = migrated(root, source, monkeypatch, first, second, lambda: path.write_text(text))
    assert any(each.startswith(f"mine-vllm 1.0: {fault}") for each in done.faults), done.faults


def test_new_errors_count_where_they_are(root: Path, tmp_path: Path) -> None:
    after = tmp_path / "after"
    (after / "mine").mkdir(parents=True)
    (after / "mine" / "a.py").write_text("import x\n" + MINE + "\n\ny = 1\n", encoding="utf-8")
    classes = (MigratedClass("mine/a.py", 4, "outer.<locals>.Mine", Outcome.MIGRATED, "S", ()),)
    package = Migrated("mine-vllm 1.0", "mine", 3, ("mine/a.py",), classes, {}, (), (), (), (), (), ())
    old = [Finding("mine/a.py", 5, 1, "code", "was there"), Finding("mine/b.py", 1, 1, "code", "other file")]
    moved = Finding("mine/a.py", 6, 1, "code", "was there")
    new = [moved, Finding("mine/a.py", 6, 5, "code", "new"), Finding("mine/a.py", 9, 1, "code", "outside")]
    (checked,) = differences({"mypy": old}, {"mypy": new}, (root, after), [package])
    assert checked.new == ("mine/a.py:6: Mine: new [code]",)
    assert checked.elsewhere == ("mine/a.py:9: <module>: outside [code]",)
    assert (checked.before, checked.after, checked.gone) == (1, 3, 0)
    measured = Measured(Target.GENERIC, (package,), (checked,), 12.4)
    assert faults(measured) == ["generic: mypy: new in a migrated class: mine/a.py:6: Mine: new [code]"]
    assert faults(replace(measured, seconds=60.0))[-1] == "generic: vLLM's tree took 60 s; it must take less than 60 s"
    assert faults(replace(measured, packages=(), checked=())) == ["generic: nothing was migrated"]


def test_the_page_has_every_count() -> None:
    classes = (
        MigratedClass("vllm/a.py", 1, "One", Outcome.MIGRATED, "S", ()),
        MigratedClass("vllm/a.py", 9, "Two", Outcome.REFUSED, None, ("no <spec>_is told",)),
    )
    package = Migrated(
        "vllm 1", "vllm", 7, ("vllm/a.py",), classes, {"r": (3, 4)}, ("f",), ("g",), ("h",), (), (), ("i",)
    )
    checked = Checked("vllm", "mypy", 10, 12, ("x",), ("y", "z"), 1)
    page = render([Measured(Target.WIDENED, (package,), (checked,), 12.6)], 2)
    assert "vLLM's whole tree, 7 files, takes 13 s (`--target widened`) on 2 cores; the limit is 60 s." in page
    assert "| vllm 1 | 7 | 1 | 2 | 1 | 0 | 1 | 1 | 1 |" in page
    assert "no longer compile: 1. Files of which the report says nothing and that differ: 1. Builders" in page
    assert "| vllm | mypy | 10 | 12 | 1 | 2 | 1 |" in page
    assert "| `r` | 3 | 4 |" in page
    assert "* `vllm/a.py:9` `Two`: no \\<spec\\>\\_is told" in page


@pytest.mark.parametrize("revealed", [["Any", "int"], ["Unknown", "int"], ["int"]])
def test_silence_for_want_of_a_library_is_no_result(
    root: Path, monkeypatch: pytest.MonkeyPatch, revealed: list[str]
) -> None:
    def find(lane: Lane, root: Path, files: list[str], *_: object) -> tuple[list[Finding], str]:
        return [Finding(files[-1], 6, 1, "", each, "reveal") for each in revealed], "1"

    monkeypatch.setattr("typecheck.migration.checked.find", find)
    with pytest.raises(UnresolvedError, match="mypy does not find vllm or genericbuilders"):
        check_tree(root, ["mine/a.py"], root)
