"""``migrate`` with a stand-in for the engine: what each mode shows and writes, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import fake_migration as fake
import pytest
from typer.testing import Result

from genericbuilders.migration.result import Target
from genericbuilders.migration.run import Engine

Invoke = Callable[..., Result]
REPORT_ONLY = "This is a report only, nothing was written"


def find_fake() -> Engine[fake.FakeProject]:
    return fake.ENGINE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a builder, one that is refused, and a file without any."""
    project = tmp_path / "project"
    (project / "pkg").mkdir(parents=True)
    (project / "pkg" / "mine.py").write_text("import x\n\n" + fake.SOURCE, encoding="utf-8")
    (project / "pkg" / "odd.py").write_text(fake.SOURCE + "# REFUSED\n", encoding="utf-8")
    (project / "other.py").write_text("x = 1\n", encoding="utf-8")
    monkeypatch.chdir(project)
    monkeypatch.setattr("genericbuilders.cli.migrate.find_engine", find_fake)
    return project


def texts(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lines(result: Result) -> list[str]:
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_without_a_mode_it_only_reports(folder: Path, invoke: Invoke) -> None:
    before = texts(folder)
    done = invoke("migrate", ".")
    assert (done.exit_code, done.stderr) == (0, "")
    assert lines(done) == [
        "pkg/mine.py would change",
        "line class or rule result what",
        "3 Mine migrated MambaSpec, told by hint of kv_cache_spec (line 9)",
        "3:12 spec-argument changes NewBuilder for generic",
        "",
        "pkg/odd.py stays",
        "line class or rule result what",
        "1 Mine refused spec unknown",
        "1:7 spec-unknown left nothing says which spec it takes; add a marker",
        "",
        "rule changes left",
        "spec-argument 1 0",
        "spec-unknown 0 1",
        "",
        "3 files, 2 builder classes (1 migrated, 0 unchanged, 1 refused): 1 file would be rewritten. "
        f"{REPORT_ONLY}: --diff shows the changes, --write makes them.",
    ]
    assert texts(folder) == before
    assert done.stdout.endswith(f"{REPORT_ONLY}: --diff shows the changes, --write makes them.\n")


def test_nothing_to_do(folder: Path, invoke: Invoke) -> None:
    for mode in ((), ("--check",), ("--diff",), ("--write",)):
        assert invoke("migrate", "other.py", *mode).exit_code == 0
    assert lines(invoke("migrate", "other.py")) == [
        f"1 file, 0 builder classes (0 migrated, 0 unchanged, 0 refused): 0 files would be rewritten. {REPORT_ONLY}."
    ]
    # One that is refused changes nothing either.
    assert invoke("migrate", "pkg/odd.py", "--check").exit_code == 0


def test_a_line_end_in_a_name_makes_no_line_of_its_own(folder: Path, invoke: Invoke) -> None:
    (folder / "a\nb.py:1:1: rule: forged.py").write_text(fake.SOURCE)
    done = invoke("migrate", "--check", ".")
    assert done.exit_code == 1
    assert not any(line.startswith("b.py") for line in done.stdout.splitlines())
    assert "a\N{REPLACEMENT CHARACTER}b.py" in done.stdout


def test_check(folder: Path, invoke: Invoke) -> None:
    mine = folder / "pkg" / "mine.py"
    mine.write_text(mine.read_text() + "# LEFT\n", encoding="utf-8")
    before = texts(folder)
    done = invoke("migrate", "--check", ".", "--target", "widened")
    assert done.exit_code == 1
    # What is left changes nothing, and is in the report only.
    assert done.stdout == "pkg/mine.py:3:12: spec-argument: NewBuilder for widened\n"
    assert "a cast that is still needed" in invoke("migrate", ".").stdout
    assert done.stderr.endswith("(1 migrated, 0 unchanged, 1 refused): 1 file would be rewritten.\n")
    assert texts(folder) == before


def test_write(folder: Path, invoke: Invoke) -> None:
    before = texts(folder)
    done = invoke("migrate", "--write", ".")
    assert (done.exit_code, done.stderr) == (0, "")
    assert lines(done)[0] == "pkg/mine.py rewritten"
    assert lines(done)[-1].endswith(": 1 file was rewritten.")
    assert texts(folder) == {**before, "pkg/mine.py": b"import x\n\n" + fake.MIGRATED.encode()}
    again = invoke("migrate", "--write", ".")
    assert lines(again)[-1].endswith(": 0 files were rewritten.")
    assert invoke("migrate", "--check", ".").exit_code == 0


@pytest.mark.parametrize("tool", ["git", "patch"])
def test_a_diff_can_be_applied_byte_for_byte(folder: Path, invoke: Invoke, tool: str) -> None:
    odd = {
        "crlf.py": b"# one\r\n" + fake.SOURCE.replace("\n", "\r\n").encode(),
        "mixed.py": b"'''\r\n\r\x0c'''\n# \xc3\xa9\xe2\x80\xa8 \n" + fake.SOURCE.encode() + b"\r\n\r\n",
        "end.py": fake.SOURCE.rstrip().encode(),
        "last.py": fake.SOURCE.encode() + b"x = OldBuilder",
        "mark.py": b"\xef\xbb\xbf" + fake.SOURCE.encode(),
        "latin.py": b"# coding: latin-1\n# caf\xe9 ACCENT\n" + fake.SOURCE.encode(),
    }
    for name, data in odd.items():
        (folder / name).write_bytes(data)
    before = texts(folder)
    done = invoke("migrate", ".", "--diff")
    assert done.exit_code == 0
    assert texts(folder) == before
    assert b"--- a/pkg/mine.py\n+++ b/pkg/mine.py\n@@ -1,4 +1,4 @@\n" in done.stdout_bytes
    assert "7 files would be rewritten." in done.stderr
    command = ["git", "apply", "-"] if tool == "git" else ["patch", "--binary", "-p1", "-s"]
    subprocess.run(command, input=done.stdout_bytes, check=True, capture_output=True)
    applied = texts(folder)
    for name, data in before.items():
        (folder / name).write_bytes(data)
    assert invoke("migrate", ".", "--write").exit_code == 0
    assert texts(folder) == applied
    assert applied != before


def test_json(folder: Path, invoke: Invoke) -> None:
    (folder / "bad.py").write_text("def (:\n", encoding="utf-8")
    done = invoke("migrate", ".", "--format", "json", "--target", "widened")
    assert done.exit_code == 1
    whole = json.loads(done.stdout)
    assert whole.pop("seconds") >= 0
    finding = {"line": 3, "column": 12, "rule": "spec-argument", "message": "NewBuilder for widened", "changes": True}
    left = {
        "line": 1,
        "column": 7,
        "rule": "spec-unknown",
        "changes": False,
        "message": "nothing says which spec it takes; add a marker",
    }
    nothing: dict[str, object] = {"written": False, "diff": None, "findings": []}
    assert whole == {
        "version": 1,
        "mode": "report",
        "target": "widened",
        "root": str(folder),
        "counts": {
            "files": 4,
            "files_changed": 1,
            "files_written": 0,
            "files_failed": 1,
            "classes": 2,
            "migrated": 1,
            "unchanged": 0,
            "refused": 1,
        },
        "rules": {"spec-argument": {"changes": 1, "left": 0}, "spec-unknown": {"changes": 0, "left": 1}},
        "files": [
            {
                "path": "pkg/mine.py",
                "changed": True,
                **nothing,
                "classes": [
                    {
                        "name": "Mine",
                        "line": 3,
                        "outcome": "migrated",
                        "spec": "MambaSpec",
                        "evidence": "hint of kv_cache_spec (line 9)",
                        "findings": [finding],
                    }
                ],
            },
            {
                "path": "pkg/odd.py",
                "changed": False,
                **nothing,
                "classes": [
                    {
                        "name": "Mine",
                        "line": 1,
                        "outcome": "refused",
                        "spec": None,
                        "evidence": None,
                        "findings": [left],
                    }
                ],
            },
        ],
        "failures": [{"path": "bad.py", "reason": "it does not parse: invalid syntax, line 1"}],
    }
    assert f"{REPORT_ONLY}: --diff" in done.stderr


def test_json_of_other_modes(folder: Path, invoke: Invoke) -> None:
    checked = invoke("migrate", ".", "--format", "json", "--check")
    assert (checked.exit_code, json.loads(checked.stdout)["mode"]) == (1, "check")
    whole = json.loads(invoke("migrate", ".", "--format", "json", "--diff").stdout)
    assert [file["diff"] for file in whole["files"]] == [invoke("migrate", ".", "--diff").stdout, None]
    whole = json.loads(invoke("migrate", ".", "--format", "json", "--write").stdout)
    assert [file["written"] for file in whole["files"]] == [True, False]
    assert whole["counts"]["files_written"] == 1


@pytest.mark.parametrize("mode", ["--check", "--diff", "--write", None])
@pytest.mark.parametrize("form", ["table", "json"])
def test_output(folder: Path, invoke: Invoke, mode: str | None, form: str) -> None:
    modes = [] if mode is None else [mode]
    if mode != "--write":
        plain = invoke("migrate", ".", *modes)
    else:
        plain = None
    done = invoke("migrate", ".", *modes, "--format", form, "--output", "report.out")
    written = (folder / "report.out").read_text(encoding="ascii")
    if form == "json":
        assert json.loads(written)["mode"] == (mode or "--report").removeprefix("--")
    else:
        assert written.splitlines()[0].startswith("pkg/mine.py  ")
        assert "\x1b" not in written
    # The lines and the diff go where they go without a file; the report itself goes to the file only.
    assert done.stdout == (plain.stdout if plain is not None and mode else "")
    assert "builder classes" in done.stderr
    assert done.exit_code == (1 if mode == "--check" else 0)
    assert {path.name for path in folder.iterdir()} == {"pkg", "other.py", "report.out"}


def test_a_file_outside_the_current_folder(folder: Path, tmp_path: Path, invoke: Invoke) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text(fake.SOURCE, encoding="utf-8")
    assert invoke("migrate", "../outside.py", "--check").stdout.startswith(f"{outside}:1:12: ")
    assert invoke("migrate", "../outside.py", "--diff").stdout.startswith(f"--- {outside}\n+++ {outside}\n")


def test_a_terminal_is_sent_nothing_that_a_file_says_to_it(folder: Path, invoke: Invoke) -> None:
    name = "a\x1b[2J.py"
    (folder / name).write_text(fake.SOURCE, encoding="utf-8")
    for mode in ("--check", "--write"):
        done = invoke("migrate", name, mode)
        assert "\x1b" not in done.stdout
        assert "a\N{REPLACEMENT CHARACTER}[2J.py" in done.stdout


def test_the_real_engine_takes_its_place(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("x = 1\n", encoding="utf-8")
    done = invoke("migrate", path, "--format", "json")
    assert done.exit_code == 0, (done.stderr, done.exception)
    assert json.loads(done.stdout)["counts"]["files"] == 1


def test_targets_are_those_of_the_engine(invoke: Invoke) -> None:
    text = invoke("migrate", "--help").stdout
    for target in Target:
        assert target.value in text


Trouble = Literal["replace", "open", "fsync"]


@pytest.mark.parametrize("trouble", ["replace", "open"])
def test_write_skips_what_it_may_not_write(
    folder: Path, invoke: Invoke, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "last.py").write_text(fake.SOURCE, encoding="utf-8")
    real = getattr(os, trouble)

    def refuse(path: Path | str, *arguments: object, **options: object) -> object:
        if "mine.py" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, trouble, refuse)
    done = invoke("migrate", ".", "--write")
    assert done.exit_code == 1
    assert done.stderr == (
        f"skipped: pkg/mine.py: no permission to write in {folder / 'pkg'} (Permission denied); nothing was written\n"
    )
    assert lines(done)[-1].endswith(": 1 file was rewritten; 1 file skipped.")
    assert (folder / "last.py").read_text() == fake.MIGRATED
    assert sorted(path.name for path in (folder / "pkg").iterdir()) == ["mine.py", "odd.py"]
    assert fake.SOURCE in (folder / "pkg" / "mine.py").read_text()
