"""The checkers that are installed, over small files: nobody's settings count, and nothing else is looked at."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from genericbuilders.checkers import CHECKERS, Checker, Request, Status, check_all
from genericbuilders.checkers.checker import Level, NotFoundError
from genericbuilders.checkers.pyright import Pyright

LAX = {
    "mypy.ini": "[mypy]\nignore_errors = True\n",
    "setup.cfg": "[mypy]\nignore_errors = True\n",
    "pyproject.toml": "[tool.mypy]\nignore_errors = true\n[tool.pyright]\nignore = ['**']\n[tool.basedpyright]\n"
    "ignore = ['**']\n[tool.pyrefly]\nproject-excludes = ['**']\n[tool.ty.rules]\nall = 'ignore'\n",
    "pyrightconfig.json": '{"ignore": ["**"]}',
    "pyrefly.toml": "project-excludes = ['**']\nsearch-path = []\n",
    "ty.toml": "[rules]\nall = 'ignore'\n",
    ".gitignore": "*\n",
}


def installed() -> list[Checker]:
    found: list[Checker] = []
    for checker in CHECKERS:
        try:
            checker.locate()
        except NotFoundError:
            continue
        found.append(checker)
    return found


def strictest(checker: Checker) -> tuple[Checker, Level]:
    return checker, checker.levels[-1]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a space in its name, settings that silence everything, and files with awkward names."""
    folder = tmp_path / "a project"
    for sub in ("one", "two", ".hidden", "node_modules/x", "not-a-name"):
        (folder / sub).mkdir(parents=True)
    (folder / "helper.py").write_text("def number() -> int:\n    return 1\n", encoding="utf-8")
    wrong = "from helper import number\n\ntext: str = number()\n"
    for name in (
        *("one/same.py", "two/same.py", ".hidden/h.py", "node_modules/x/n.py"),
        *("not-a-name/not-a-name.py", "stub.pyi"),
    ):
        (folder / name).write_text(wrong, encoding="utf-8")
    (folder / "empty.py").touch()
    for name, text in LAX.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_every_file_is_checked_and_no_settings_count(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    for name in (".config/mypy/config", ".mypy.ini", ".config/ty/ty.toml", ".config/pyrefly/pyrefly.toml"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        text = LAX["ty.toml"] if "ty/" in name else LAX["pyrefly.toml"] if "pyrefly" in name else LAX["mypy.ini"]
        (home / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("MYPYPATH", "/nowhere")
    monkeypatch.setenv("MYPY_CONFIG_FILE_DIR", "/nowhere")
    monkeypatch.setenv("TY_CONFIG_FILE", str(project / "ty.toml"))
    monkeypatch.setenv("PYRIGHT_PYTHON_FORCE_VERSION", "0.0.1")
    files = tuple(sorted(path for path in project.rglob("*.py*") if path.suffix in (".py", ".pyi")))
    wrong = {(path, 3) for path in files if path.name not in ("helper.py", "empty.py")}
    assert len(wrong) == 6
    request = Request(files, project, cache_dir=tmp_path / "cache")
    # At its strictest level ty is told on its command line what is an error, and that would hide settings that count.
    lax = [(checker, checker.levels[0]) for checker in installed() if checker.name == "ty"]
    runs = check_all([*map(strictest, installed()), *lax], request)
    # Some have to be there, or this test could not fail.
    assert {"mypy", "pyright", "ty"} <= {run.checker for run in runs}
    for run in runs:
        assert run.status is Status.OK, (run.label, run.reason)
        assert run.version
        assert wrong <= run.error_lines, run.label
        others = {each for each in run.error_lines if each[0].name in ("helper.py", "empty.py")}
        assert not others, run.label


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.name)
def test_a_name_with_brackets_is_no_pattern(checker: Checker, tmp_path: Path) -> None:
    if checker not in installed():
        pytest.skip(f"{checker.name} is not installed")
    if checker.name == "zuban":
        pytest.skip("zuban finds patterns only below the folder of its configuration file")
    for name in ("a[bc].py", "ab.py"):
        (tmp_path / name).write_text("x: int = ''\n", encoding="utf-8")
    file = tmp_path / "a[bc].py"
    (run,) = check_all([strictest(checker)], Request((file,), tmp_path, cache_dir=tmp_path / "cache"))
    assert (run.status, run.error_lines, run.dropped) == (Status.OK, frozenset({(file, 1)}), 0), run.reason


def test_pyright_looks_at_no_other_file_of_a_big_tree(tmp_path: Path) -> None:
    folder = tmp_path / "big"
    for index in range(40):
        sub = folder / f"sub{index}"
        sub.mkdir(parents=True)
        for number in range(50):
            (sub / f"m{number}.py").write_text("x: int = ''\n", encoding="utf-8")
    file = folder / "small.py"
    file.write_text("x: int = ''\n", encoding="utf-8")
    (run,) = check_all([strictest(Pyright())], Request((file,), folder, cache_dir=tmp_path))
    assert run.status is Status.OK, run.reason
    assert len(run.error_lines) == 1
    # Any other file would be among the reports: all of them have an error.
    assert run.dropped == 0


def test_pyrights_settings_name_no_file(tmp_path: Path) -> None:
    checker = Pyright()
    request = Request((Path("/p/a.py"),), Path("/p"), search_paths=(Path("/q"),), stub_paths=(Path("/s"),))
    command = checker.command(Path("/bin/pyright"), checker.level("strict"), request, tmp_path)
    settings = json.loads((tmp_path / "pyrightconfig.json").read_text(encoding="utf-8"))
    assert settings == {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": ["/s", "/p", "/q"],
        "exclude": [],
    }
    assert command.arguments[-1] == "/p/a.py"


def test_what_mypy_remembers_is_right_from_another_folder(tmp_path: Path) -> None:
    file = tmp_path / "scripts" / "a.py"
    file.parent.mkdir()
    file.write_text("x: int = ''\n", encoding="utf-8")
    checker = next(each for each in CHECKERS if each.name == "mypy")
    for root in (tmp_path, file.parent):
        request = Request((file,), root, search_paths=(file.parent,), cache_dir=tmp_path / "cache")
        (run,) = check_all([strictest(checker)], request)
        assert (run.status, run.error_lines, run.dropped) == (Status.OK, frozenset({(file, 1)}), 0), root


def test_mypys_cache_is_where_it_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("", encoding="utf-8")
    checker = next(each for each in CHECKERS if each.name == "mypy")
    check_all([(checker, checker.level("default"))], Request((tmp_path / "a.py",), tmp_path, cache_dir=tmp_path / "c"))
    assert [name.rpartition("-")[0] for name in os.listdir(tmp_path / "c")] == ["mypy-default"]
    assert not (tmp_path / ".mypy_cache").exists()


def test_a_package_of_the_same_name_and_text_elsewhere_is_reported_where_it_is(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for place in ("here", "there"):
        package = tmp_path / place / "package"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        file = package / "wrong.py"
        file.write_text("text: str = 1\n", encoding="utf-8")
        pairs = [strictest(checker) for checker in installed()]
        request = Request((file,), package.parent, cache_dir=cache)
        for outcome in check_all(pairs, request, jobs=1):
            assert [found.path for found in outcome.diagnostics if found.line == 1] == [file], outcome


def test_so_are_scripts_of_the_same_text_in_folders_that_name_no_package(tmp_path: Path) -> None:
    files = [tmp_path / folder / "same.py" for folder in ("exercise-1", "exercise-2", "plain")]
    for file in files:
        file.parent.mkdir()
        file.write_text("text: str = 1\n", encoding="utf-8")
        request = Request((file,), tmp_path, cache_dir=tmp_path / "cache")
        (run,) = check_all([strictest(next(each for each in CHECKERS if each.name == "mypy"))], request)
        assert (run.error_lines, run.dropped) == (frozenset({(file, 1)}), 0)


def test_caches_of_projects_long_unused_are_removed(tmp_path: Path) -> None:
    file = tmp_path / "right.py"
    file.write_text("text: str = ''\n", encoding="utf-8")
    cache = tmp_path / "cache"
    folders = [cache / f"mypy-strict-{name}" for name in ("old", "recent")]
    for folder in folders:
        folder.mkdir(parents=True)
    os.utime(folders[0], (1, 1))
    mypy = next(checker for checker in CHECKERS if checker.name == "mypy")
    list(check_all([strictest(mypy)], Request((file,), tmp_path, cache_dir=cache), jobs=1))
    assert [folder.exists() for folder in folders] == [False, True]
