"""``compare`` with stand-ins: who says what, exit codes, the JSON object, bad input."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import fake_checkers as fake
import pytest
from typer.testing import Result

from genericbuilders.checkers.ty import Ty

Invoke = Callable[..., Result]
TY_WARNING = (
    '[{"check_name": "rule", "description": "rule: hm", "severity": "minor",'
    ' "location": {"path": "a.py", "positions": {"begin": {"line": 4, "column": 2}}}}]'
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two files; no checker is installed."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("b.py", "a.py"):
        (folder / name).write_text("".join(f"line{number} = 1\n" for number in range(1, 6)), encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fake.only(monkeypatch)
    return folder


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have mypy report errors on lines of files, and zuban on others, each at all its levels."""

    def install(mypy: Sequence[tuple[str, int]], zuban: Sequence[tuple[str, int]]) -> None:
        fake.install(monkeypatch, tmp_path, "mypy", fake.mypy_says([fake.mypy_report(*place) for place in mypy]))
        lines = "\n".join(f"{path}:{line}:1: error: not so  [misc]" for path, line in zuban)
        fake.install(monkeypatch, tmp_path, "zuban", f"cat <<'END'\n{lines}\nEND\nexit {int(bool(zuban))}")

    return install


def test_all_agree(project: Path, invoke: Invoke, say: Callable[..., None]) -> None:
    say([("a.py", 2)], [("a.py", 2)])
    done = invoke("compare", "a.py", "b.py")
    assert done.exit_code == 0, done.stderr
    assert "line2" not in done.stdout
    assert "2 files, 3 levels, 1 line with errors: all agree." in done.stdout
    assert "line2 = 1" in invoke("compare", "a.py", "--all").stdout


def test_they_differ(project: Path, invoke: Invoke, say: Callable[..., None]) -> None:
    say([("a.py", 2), ("b.py", 3)], [("a.py", 2), ("a.py", 5)])
    done = invoke("compare", "b.py", "a.py")
    assert done.exit_code == 1, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[:7] == [
        *("b.py:3 line3 = 1", "error mypy (default, strict) no [misc]", "silent zuban (strict)", ""),
        *("a.py:5 line5 = 1", "error zuban (strict) not so [misc]", "silent mypy (default, strict)"),
    ]
    assert any(line.startswith("zuban 9.9 strict ok 2 1 ") for line in lines)
    assert lines[-1] == "2 files, 3 levels, 3 lines with errors: the levels differ on 2, and agree on 1."
    assert "pyright is nowhere; to install it: pip install pyright==" in done.stdout


def test_json(project: Path, invoke: Invoke, say: Callable[..., None]) -> None:
    say([("a.py", 2), ("a.py", 1)], [("a.py", 2)])
    done = invoke("compare", ".", "--json", "--checker", "mypy", "--checker", "zuban", "--checker", "ty")
    whole = json.loads(done.stdout)
    assert done.exit_code == 1
    assert set(whole) == {
        *("agree", "root", "python", "python_version", "search_paths", "files", "left_out", "runs", "lines"),
    }
    assert (whole["agree"], whole["root"], whole["files"]) == (False, str(project), ["a.py", "b.py"])
    assert [(run["label"], run["status"], run["install"]) for run in whole["runs"]] == [
        ("mypy-default", "ok", None),
        ("mypy-strict", "ok", None),
        ("ty-default", "missing", f"pip install ty=={Ty.tested}"),
        ("ty-all", "missing", f"pip install ty=={Ty.tested}"),
        ("zuban-strict", "ok", None),
    ]
    assert set(whole["runs"][0]) == {
        *("label", "checker", "level", "version", "status", "reason", "install"),
        *("errors", "error_lines", "seconds", "peak_bytes"),
    }
    first, second = whole["lines"]
    said = {"column": 1, "severity": "error", "fails": True, "code": "misc", "message": "no"}
    assert first == {
        "path": "a.py",
        "line": 1,
        "source": "line1 = 1",
        "agree": False,
        "reporting": ["mypy-default", "mypy-strict"],
        "silent": ["zuban-strict"],
        "reports": [{"label": "mypy-default", **said}, {"label": "mypy-strict", **said}],
    }
    assert (second["line"], second["agree"], second["silent"]) == (2, True, [])


def test_a_warning_that_fails_nothing_is_shown_and_is_no_error(
    project: Path, invoke: Invoke, say: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say([("a.py", 4)], [("a.py", 4)])
    fake.install(monkeypatch, tmp_path, "ty", f"echo '{TY_WARNING}'")
    done = invoke("compare", "a.py")
    assert done.exit_code == 1
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "warning ty (default, all) hm [rule]" in lines
    assert not any(line.startswith("silent") for line in lines)
    (line,) = json.loads(invoke("compare", "a.py", "--json").stdout)["lines"]
    assert line["silent"] == ["ty-default", "ty-all"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("kill -9 $$", "ty-default broke down, and does not count: it was ended by signal 9"),
        (fake.HANGS, "ty-default took too long, and does not count: not done after 0.7 s"),
    ],
    ids=["crash", "hang"],
)
def test_one_that_does_not_come_to_its_end(
    project: Path,
    invoke: Invoke,
    say: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    words: str,
) -> None:
    say([], [])
    fake.install(monkeypatch, tmp_path, "ty", body)
    done = invoke("compare", "a.py", "--time-limit", "0.7", "--level", "default", "--level", "zuban-strict")
    assert done.exit_code == 1
    assert words in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last == "1 file, 2 levels, 0 lines with errors: no difference, but not every level came to its end."


def test_one_that_gives_up_does_not_count(
    project: Path, invoke: Invoke, say: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say([], [("a.py", 1)])
    fake.install(monkeypatch, tmp_path, "mypy", fake.mypy_says([fake.mypy_report("a.py", 5, "syntax")], 2))
    done = invoke("compare", "a.py", "--all")
    assert done.exit_code == 1
    assert "mypy-strict gave up, and does not count: stopped before any other file was checked: a.py:5: syntax" in (
        done.stdout
    )
    assert "a.py:5  line5 = 1" in done.stdout
    # What did not count is not counted.
    assert "1 file, 1 level, 1 line with errors: no difference, but" in done.stdout


def test_one_level_alone(project: Path, invoke: Invoke, say: Callable[..., None]) -> None:
    say([("a.py", 1)], [])
    done = invoke("compare", "a.py", "--level", "mypy-strict")
    assert done.exit_code == 0
    assert "1 line with errors: one level has nothing to be compared with." in done.stdout


def test_a_terminal_is_sent_nothing_that_a_file_says_to_it(
    project: Path, invoke: Invoke, say: Callable[..., None]
) -> None:
    (project / "a.py").write_text("x = '\x1b[2J[red]'\n", encoding="utf-8")
    say([("a.py", 1)], [])
    assert "a.py:1  x = '\N{REPLACEMENT CHARACTER}[2J[red]'" in invoke("compare", "a.py").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py"], "nowhere.py: there is no such file or folder"),
        (["broken.py"], "broken.py: it is a link to gone, which is not there"),
        (["notes.txt"], "notes.txt: it is not a Python file; the name must end in .py or .pyi"),
        (["folder"], "folder: there is no Python file in it that can be compared"),
        (["latin.py"], "latin.py: byte 0xe9 at position 2 is not UTF-8, all that every checker reads"),
        (["a.py", "--checker", "pylint"], "--checker pylint: there is no such checker; there are mypy, pyright"),
        (["a.py", "--level", "lax"], "--level lax: there is no such level here; there are mypy-default, mypy-strict"),
        (
            ["a.py", "--checker", "ty", "--level", "strict"],
            "--level strict: there is no such level here; there are ty-",
        ),
        (
            ["a.py", "--checker", "ty", "--checker", "mypy", "--level", "strict"],
            "--checker ty: it has none of the levels strict",
        ),
        (["a.py", "--python", "nope"], "--python nope: there is no such program"),
        (["a.py", "--python", "/bin/ls"], "--python /bin/ls: it is no Python interpreter"),
        (["a.py", "--search-path", "nope"], "--search-path nope: there is no such folder"),
        (["a.py", "--time-limit", "0"], "--time-limit 0: it must be a number of seconds above 0"),
        (["a.py", "--time-limit", "inf"], "--time-limit inf: it must be"),
        (["a.py", "--jobs", "0"], "--jobs 0: at least one checker must run"),
        (["a.py"], "no checker is installed: mypy is nowhere; to install it: pip install mypy=="),
        ([""], "'' is no path; the current folder is ."),
        (["a.py", ""], "'' is no path"),
        (["a.py", "--search-path", ""], "--search-path '': there is no such folder"),
        (["a.py", "--python", ""], "--python '': there is no such program"),
    ],
)
def test_bad_input(project: Path, invoke: Invoke, arguments: list[str], message: str) -> None:
    (project / "broken.py").symlink_to("gone")
    (project / "notes.txt").touch()
    (project / "folder" / ".hidden").mkdir(parents=True)
    (project / "folder" / ".hidden" / "h.py").touch()
    (project / "latin.py").write_bytes(b"# \xe9\n")
    done = invoke("compare", *arguments)
    assert done.exit_code == 2, done.output
    assert f"error: {message}" in done.stderr
    assert done.stdout == ""


def test_what_is_left_out_of_a_folder_is_told(project: Path, invoke: Invoke, say: Callable[..., None]) -> None:
    say([], [])
    (project / "broken.py").symlink_to("gone")
    (project / "latin.py").write_bytes(b"# \xe9\n")
    (project / "b.pyi").touch()
    done = invoke("compare", ".", "--json")
    assert done.exit_code == 0
    whole = json.loads(done.stdout)
    assert whole["files"] == ["a.py", "b.pyi"]
    assert [each["path"] for each in whole["left_out"]] == ["b.py", "broken.py", "latin.py"]
    assert "left out: latin.py: byte 0xe9 at position 2" in done.stderr


def test_a_variable_that_names_no_program(
    project: Path, invoke: Invoke, say: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    say([], [])
    monkeypatch.setenv("GENERICBUILDERS_TY", "/typo")
    done = invoke("compare", "a.py")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "error: GENERICBUILDERS_TY is '/typo', and there is no such program; name one, or unset it" in done.stderr
    # Who is not asked does not matter.
    assert invoke("compare", "a.py", "--checker", "mypy").exit_code == 0


def test_a_current_folder_that_is_gone(project: Path, invoke: Invoke, say: Callable[..., None]) -> None:
    say([], [])
    gone = project / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    done = invoke("compare", project / "a.py")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "error: the current folder: No such file or directory; go to one that is there" in done.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.E2BIG, "too long", "/bin/python"), "on 1 file: too long; name fewer files, or smaller folders"),
        (OSError(errno.EACCES, "no", "/bin/python"), "cannot be started: /bin/python: no; see that you may use it"),
        (OSError(errno.EACCES, "no", "."), "no; go to a folder that you may enter"),
        (OSError(errno.ENOSPC, "full"), "checkers cannot be started: full"),
    ],
)
def test_checkers_that_cannot_be_started(
    project: Path,
    invoke: Invoke,
    say: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    error: OSError,
    message: str,
) -> None:
    say([], [])
    if error.filename == ".":
        error.filename = str(project)

    def fail(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr("genericbuilders.cli.compare.check_all", fail)
    done = invoke("compare", "a.py")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_from_inside_a_package(project: Path, invoke: Invoke, say: Callable[..., None]) -> None:
    (project / "pkg").mkdir()
    (project / "pkg" / "__init__.py").touch()
    (project / "pkg" / "a.py").write_text("from . import b\n", encoding="utf-8")
    os.chdir(project / "pkg")
    # The stand-ins, like the real ones, name files from the folder that they run in.
    say([("pkg/a.py", 1)], [])
    done = invoke("compare", ".")
    assert done.exit_code == 1
    assert "a.py:1  from . import b" in done.stdout
    assert "pkg/a.py" not in done.stdout
    assert f"modules are named from {project}" in done.stderr
    whole = json.loads(invoke("compare", ".", "--json").stdout)
    assert (whole["root"], whole["search_paths"]) == (str(project), [])
    assert whole["files"] == ["pkg/__init__.py", "pkg/a.py"]
    assert whole["lines"][0]["path"] == "pkg/a.py"
