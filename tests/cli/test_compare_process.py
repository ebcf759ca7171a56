"""``compare`` in a process of its own: the checkers that are installed, Ctrl-C, pipes, what is imported."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import fake_checkers as fake
import pytest

Start = Callable[..., subprocess.Popen[str]]
SOURCE = "def f(x: int | None) -> str:\n    return x + 1\n\n\ndef g(y) -> None:\n    del y\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a file.py"
    path.write_text(SOURCE, encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def test_the_checkers_that_are_installed(file: Path, start: Start) -> None:
    process = start("compare", file, "--json", "--level", "default", "--level", "standard", "--level", "strict")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 1, stderr
    whole = json.loads(stdout)
    statuses = {run["label"]: run["status"] for run in whole["runs"]}
    assert statuses["mypy-strict"] == statuses["pyright-strict"] == "ok"
    lines = {line["line"]: line for line in whole["lines"]}
    assert {"mypy-default", "mypy-strict", "pyright-standard", "pyright-strict"} <= set(lines[2]["reporting"])
    assert lines[2]["source"] == "    return x + 1"
    assert {"mypy-strict", "pyright-strict"} <= set(lines[5]["reporting"])
    assert {"mypy-default", "pyright-standard"} <= set(lines[5]["silent"])


def test_inside_a_package_they_say_what_they_say_outside(
    tmp_path: Path, start: Start, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "project" / "pkg"
    (package / "sub").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "b.py").write_text("def g() -> int:\n    return 1\n", encoding="utf-8")
    (package / "a.py").write_text("from .b import g\nx: str = g()\n", encoding="utf-8")
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    levels = [f"--level={name}" for name in ("mypy-strict", "pyrefly-default", "ty-default", "zuban-strict")]
    for folder, named in ((package.parent, "pkg"), (package, "."), (package / "sub", ".."), (package, "a.py")):
        monkeypatch.chdir(folder)
        stdout, stderr = start("compare", named, "--json", *levels).communicate(timeout=120)
        whole = json.loads(stdout)
        assert whole["agree"], (folder, stdout, stderr)
        assert [(line["path"], line["line"]) for line in whole["lines"]] == [("pkg/a.py", 2)]
        assert {"mypy-strict", "ty-default"} <= set(whole["lines"][0]["reporting"])


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"], ids=["stdin", "stdout", "stderr"])
def test_a_stream_that_is_closed_from_the_start(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environment: dict[str, str], closed: str
) -> None:
    fake.install(monkeypatch, tmp_path, "mypy", "exit 0")
    environment.update(fake.variables())
    command = f'exec "$0" -m genericbuilders.cli compare "$1" --level mypy-strict {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, str(file)], env=environment, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    if closed == ">&-":
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == (
            "error: the standard output is closed; there is nowhere to write the result"
        )
    else:
        assert done.returncode == 0, done.stderr
        assert "nothing to be compared with" in done.stdout


def test_ctrl_c(
    file: Path, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environment: dict[str, str]
) -> None:
    fake.install(monkeypatch, tmp_path, "mypy", f"touch {tmp_path}/started; {fake.HANGS}")
    environment.update(fake.variables())
    process = start("compare", file, "--checker", "mypy")
    deadline = time.monotonic() + 30
    while not (tmp_path / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (130, ""), stderr
    assert time.monotonic() - begun < 5
    assert stderr.splitlines()[-1] == "stopped by Ctrl-C; nothing was compared"
    assert "crashed" not in stderr


def test_a_reader_that_has_seen_enough(
    file: Path, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environment: dict[str, str]
) -> None:
    fake.install(monkeypatch, tmp_path, "mypy", "sleep 0.3")
    environment.update(fake.variables())
    process = start("compare", file, "--checker", "mypy")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    stderr = process.stderr.read()
    assert process.wait(timeout=30) == 141, stderr
    assert "Traceback" not in stderr


def test_torch_is_not_loaded(file: Path, environment: dict[str, str]) -> None:
    script = (
        "import sys\n"
        "from genericbuilders.cli import main\n"
        f"sys.argv = ['genericbuilders', 'compare', {str(file)!r}, '--checker', 'mypy', '--level', 'default']\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "sys.stdout.write(' '.join({'torch', 'transformers', 'numpy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("nothing to be compared with.\n")
