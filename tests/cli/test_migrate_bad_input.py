"""``migrate`` given what it cannot use: named with the reason, the rest is done, and no file is half-written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import fake_migration as fake
import pytest
from typer.testing import Result

from genericbuilders.migration.files import Replacer, SourceFile
from genericbuilders.migration.run import Engine

Invoke = Callable[..., Result]


def find_fake() -> Engine[fake.FakeProject]:
    return fake.ENGINE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a builder."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_text(fake.SOURCE, encoding="utf-8")
    monkeypatch.chdir(project)
    monkeypatch.setattr("genericbuilders.cli.migrate.find_engine", find_fake)
    return project


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: there is no such file or folder"),
        (["a.py", "nowhere.py"], "nowhere.py: there is no such file or folder"),
        (["notes.txt"], "notes.txt: it is not a Python file; the name must end in .py"),
        (["stub.pyi"], "stub.pyi: it is not a Python file"),
        (["empty"], "empty: there is no .py file in it; name files or folders that have some"),
        ([""], "'' is no path; the current folder is ."),
        (["a.py", "--check", "--write"], "--check and --write exclude each other; give one of them"),
        (["a.py", "--check", "--diff", "--write"], "--check and --diff and --write exclude each other"),
        (["a.py", "--output", "nowhere/report"], "--output nowhere/report: there is no folder "),
        (["a.py", "--output", "empty"], "--output empty: it is a folder; name a file"),
        (["a.py", "--output", ""], "--output '': it is a folder"),
        (["a.py", "--write", "--output", "./a.py"], "--output ./a.py: it is one of the files to migrate"),
        (["a.py", "--write", "--output", "link"], "--output link: it is one of the files to migrate"),
    ],
)
def test_refused(folder: Path, invoke: Invoke, arguments: list[str], message: str) -> None:
    (folder / "notes.txt").touch()
    (folder / "stub.pyi").touch()
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("a.py")
    done = invoke("migrate", *arguments)
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
    assert (folder / "a.py").read_text() == fake.SOURCE


@pytest.mark.parametrize("option", [["--target", "narrow"], ["--format", "xml"], ["--fix"]])
def test_options_that_there_are_not(folder: Path, invoke: Invoke, option: list[str]) -> None:
    done = invoke("migrate", "a.py", *option)
    assert (done.exit_code, done.stdout) == (2, "")
    assert option[-1] in done.stderr


def test_no_path(folder: Path, invoke: Invoke) -> None:
    assert invoke("migrate").exit_code == 2


@pytest.mark.parametrize("mode", ["--check", "--diff", "--write", None])
def test_what_cannot_be_read_is_named_and_the_rest_is_done(folder: Path, invoke: Invoke, mode: str | None) -> None:
    bad = {
        "broken.py": (b"class (OldBuilder):\n", "it does not parse: invalid syntax, line 1"),
        "empty.py": (b"", None),
        "latin.py": (b"# coding: latin-1\nname = 'caf\xe9'\n", None),
        "mark.py": (
            b"\xef\xbb\xbf# coding: latin-1\n",
            "it starts with a byte order mark of UTF-8 and declares another",
        ),
        "nonsense.py": (b"# coding: nonsense\n", "it declares an unknown encoding: nonsense"),
        "undeclared.py": (b"x = 'caf\xe9'\n", "byte 0xe9 in line 1 is not utf-8"),
        "unwritable.py": (b"# coding: ascii ACCENT\n" + fake.SOURCE.encode(), "has the character '\xe9' (U+00E9)"),
    }
    for name, (data, _) in bad.items():
        (folder / name).write_bytes(data)
    (folder / "lost.py").symlink_to("gone")
    expected = {name: reason for name, (_, reason) in bad.items() if reason is not None}
    expected["lost.py"] = "it is a link to gone, which is not there"
    done = invoke("migrate", ".", *([] if mode is None else [mode]))
    assert done.exit_code == 1
    skipped = [line for line in done.stderr.splitlines() if line.startswith("skipped: ")]
    assert [line.split(":")[1].strip() for line in skipped] == sorted(expected)
    for line in skipped:
        assert expected[line.split(":")[1].strip()] in line
    assert "; 6 files skipped." in done.stdout + done.stderr
    for name, (data, _) in bad.items():
        assert (folder / name).read_bytes() == data
    assert (folder / "a.py").read_text() == (fake.MIGRATED if mode == "--write" else fake.SOURCE)


def test_named_files_that_do_not_parse_are_no_bad_input(folder: Path, invoke: Invoke) -> None:
    (folder / "broken.py").write_text("class (:\n", encoding="utf-8")
    assert invoke("migrate", "broken.py", "--check").exit_code == 1


def test_a_file_that_changes_while_it_runs(folder: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "b.py").write_text(fake.SOURCE, encoding="utf-8")
    replace = Replacer.replace

    def edited(self: Replacer, source: SourceFile, text: str) -> None:
        if source.path.name == "a.py":
            source.path.write_text("x = 1\n", encoding="utf-8")
        replace(self, source, text)

    monkeypatch.setattr(Replacer, "replace", edited)
    done = invoke("migrate", ".", "--write")
    assert done.exit_code == 1
    assert done.stderr == "skipped: a.py: it changed while this ran; nothing was written, run again\n"
    assert ((folder / "a.py").read_text(), (folder / "b.py").read_text()) == ("x = 1\n", fake.MIGRATED)


def test_a_fault_of_the_engine_is_the_files(folder: Path, invoke: Invoke) -> None:
    (folder / "b.py").write_text(fake.SOURCE + "# CRASH", encoding="utf-8")
    done = invoke("migrate", ".", "--write")
    assert done.exit_code == 1
    assert "skipped: b.py: a fault of this program, please report it: LookupError: no such thing" in done.stderr
    assert (folder / "a.py").read_text() == fake.MIGRATED


def test_a_report_that_cannot_be_written(folder: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Replacer, path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Replacer, "write", full)
    done = invoke("migrate", ".", "--write", "--output", "report")
    assert done.exit_code == 2
    assert done.stderr == "error: --output report: No space left on device; 1 file was rewritten before\n"
    assert (folder / "a.py").read_text() == fake.MIGRATED


def test_the_current_folder_is_gone(tmp_path: Path, invoke: Invoke, folder: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    done = invoke("migrate", folder / "a.py")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: the current folder: ")
