"""``run`` and ``validate`` on a small study, with stand-ins for checkers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fake_checkers as fake
import pytest
from made_up_study import write

from genericbuilders.checkers import CHECKERS
from typecheck.commands.checking import run_and_compare, run_and_write
from typecheck.corpus import read_corpus
from typecheck.pins import PINS

LEVELS = ["mypy-strict", "pyright-strict", "ty-default"]
SLOT = "cases/held/slot/generic.py"


@pytest.fixture
def checked(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A study with results of three levels, as `run` writes them: mypy catches one case, pyright and ty none."""
    report = fake.mypy_report(study / SLOT, 7)
    fake.only(monkeypatch)
    fake.install(monkeypatch, tmp_path, "mypy", fake.mypy_says([report]))
    summary = f'{{"filesAnalyzed": {len(read_corpus(study).files)}}}'
    fake.install(monkeypatch, tmp_path, "pyright", f'echo \'{{"summary": {summary}, "generalDiagnostics": []}}\'')
    fake.install(monkeypatch, tmp_path, "ty", "echo '[]'")
    write(study, PINS, "".join(f"{checker.package}==9.9\n" for checker in CHECKERS))
    causes = '[[cause]]\ntitle = "t"\nonly = "mypy"\nwhy = "w"\nsources = ["s"]\ncases = ["held/slot/generic"]\n'
    write(study, "differences.toml", causes)
    assert run_and_write(LEVELS, 2, study) == 0, capsys.readouterr().err
    _ = capsys.readouterr()
    return study


def change(study: Path, name: str, old: str, new: str) -> None:
    text = (study / name).read_text(encoding="utf-8")
    assert old in text, text
    write(study, name, text.replace(old, new, 1))


def test_what_was_run_is_valid(checked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_and_compare(LEVELS, 2, checked) == 0, capsys.readouterr().err


ROW = '"held/slot" = { generic = "missed", covariant = "missed" }\n'


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        (PINS, "ty==9.9", "ty==9.8", "requirements.txt: ty is pinned at 9.8, and 9.9 is installed"),
        (SLOT, "x = 1\ny = x  # E", "x = 1  # E\ny = x", "held/slot (generic): y = x  # E -> x = 1  # E"),
        ("cases/said/family.toml", "= false", "= true", "marks.toml: said/name: expressible: false -> true"),
        ("results/marks.toml", "y = x  # E", "y = 2  # E", "held/list (asserting): y = 2  # E -> y = x  # E"),
        ("results/ty-default.toml", ROW, ROW.replace("missed", "caught: a"), "(generic): caught: a -> missed"),
        ("differences.toml", "slot/generic", "list/generic", "held/slot/generic: only mypy reports it, and no cause"),
        ("differences.toml", '"mypy"', '"pyright"', "says that only pyright reports it; it is mypy"),
    ],
)
def test_what_is_not_so_is_told(
    checked: Path, capsys: pytest.CaptureFixture[str], name: str, old: str, new: str, line: str
) -> None:
    change(checked, name, old, new)
    assert run_and_compare(LEVELS, 2, checked) == 1
    told = capsys.readouterr().err
    assert line in told
    assert "differences from study/results" in told


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        (
            "results/pyright-strict.toml",
            ROW,
            "",
            "pyright-strict.toml: it has no verdict on held/slot/covariant, held/",
        ),
        (
            "results/pyright-strict.toml",
            "slot",
            "slit",
            "no verdict on held/slot/covariant, held/slot/generic and has a",
        ),
        ("results/ty-default.toml", '"default"', '"all"', "ty-default.toml: it says that it is of ty-all"),
        ("results/ty-default.toml", "version =", "versions =", "ty-default.toml: versions is no key of a result"),
        ("results/marks.toml", "expressible", "expresible", "marks.toml: held/list.expressible must be true or false"),
        ("cases/said/family.toml", "reason", "reasons", "cases.field.reasons is no key; there are expressible, reason"),
        (SLOT, "x = 1", "x = (1", "held/slot/generic.py:6: '(' was never closed"),
        ("differences.toml", "only", "who", "differences.toml: only must be a text"),
        (PINS, "ty==", "ty>=", "requirements.txt:5: 'ty>=9.9' is no package==version"),
    ],
)
def test_what_is_malformed_is_told_in_a_line_before_anything_is_run(
    checked: Path, capsys: pytest.CaptureFixture[str], name: str, old: str, new: str, line: str
) -> None:
    change(checked, name, old, new)
    assert run_and_compare(LEVELS, 2, checked) == 2
    told = capsys.readouterr().err
    assert line in told
    assert str(checked) in told
    assert "faults in" not in told


def test_a_case_that_is_no_text(checked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checked / SLOT).write_bytes((checked / SLOT).read_bytes() + b"# \xe9\n")
    for work in (run_and_compare, run_and_write):
        assert work(LEVELS, 2, checked) == 2
        assert "held/slot/generic.py:8: byte 0xe9 is not UTF-8" in capsys.readouterr().err


def test_a_file_of_results_that_nobody_reads(checked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(checked, "results/ty-foo.toml", "")
    assert run_and_compare(["ty-default"], 1, checked) == 1
    assert "ty-foo.toml: there is no such checker and level" in capsys.readouterr().err


def test_differences_are_looked_at_where_both_were_asked(checked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checked / "differences.toml").unlink()
    assert run_and_compare(["mypy-strict"], 1, checked) == 0, capsys.readouterr().err
    assert run_and_compare(["mypy-strict", "pyright-strict"], 1, checked) == 2
    assert "differences.toml: " in capsys.readouterr().err


@pytest.mark.parametrize("work", [run_and_compare, run_and_write])
def test_names_that_are_none(
    checked: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[list[str], int, Path], int],
) -> None:
    assert work(["pylint"], 1, checked) == 2
    assert "no checker or level is called pylint; there are " in capsys.readouterr().err
    monkeypatch.setenv("GENERICBUILDERS_TY", "/typo")
    assert work(["ty"], 1, checked) == 2
    assert "GENERICBUILDERS_TY is '/typo', and there is no such program" in capsys.readouterr().err


def test_one_that_is_not_there(checked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_and_compare(["zuban", "ty-default"], 1, checked) == 1
    assert "zuban-strict  missing: zuban is nowhere" in capsys.readouterr().err


def test_results_that_cannot_be_written(checked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checked / "results" / "ty-default.toml").unlink()
    (checked / "results" / "ty-default.toml").mkdir()
    assert run_and_write(["ty-default"], 1, checked) == 2
    assert "ty-default" in capsys.readouterr().err
