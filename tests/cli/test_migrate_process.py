"""``migrate`` in a process of its own: Ctrl-C, signals, pipes, closed streams, a terminal, what is imported."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import fake_migration as fake
import psutil
import pytest

# The command with the stand-in as its engine; ``stuck`` has files written so slowly that a signal finds one half-way.
SCRIPT = """
import os, sys, time
import fake_migration as fake
from genericbuilders.cli import main, migrate
migrate.find_engine = lambda: fake.ENGINE
seconds = float(sys.argv[1])
def stuck(descriptor):
    open("started", "w").close()
    time.sleep(seconds)
if seconds:
    os.fsync = stuck
sys.argv = ["genericbuilders", "migrate", *sys.argv[2:]]
main()
"""
Run = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("a.py", "b.py", "c.py"):
        (project / name).write_text(fake.SOURCE, encoding="utf-8")
    return project


@pytest.fixture
def run(folder: Path, environment: dict[str, str]) -> Iterator[Run]:
    """Start it in that folder; it is ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        *arguments: str,
        stuck: float = 0,
        command: Sequence[str] = (),
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        words = [*command, sys.executable, "-c", SCRIPT, str(stuck), *arguments]
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=stdout, stderr=stderr)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_ctrl_c_while_processes_work(folder: Path, run: Run) -> None:
    for number in range(12):
        (folder / f"slow{number}.py").write_text(fake.SOURCE + "# SLOW", encoding="utf-8")
    process = run(".", "--write")
    wait_for(lambda: len(psutil.Process(process.pid).children()) >= min(2, os.cpu_count() or 1))
    children = psutil.Process(process.pid).children()
    time.sleep(0.3)
    # A terminal sends it to all of them.
    for each in (process.pid, *(child.pid for child in children)):
        os.kill(each, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=20)
    assert (process.returncode, stdout) == (130, b""), stderr
    assert stderr == b"stopped by Ctrl-C; nothing was written\n"
    assert psutil.wait_procs(children, timeout=5)[1] == []
    assert (folder / "a.py").read_text() == fake.SOURCE


@pytest.mark.parametrize(
    ("stuck", "number", "code", "said", "written"),
    [
        # The file at hand is done whole; then it stops.
        (0.4, signal.SIGINT, 130, b"stopped by Ctrl-C; 1 of 3 files were rewritten, each of them whole\n", 1),
        # It takes too long: the second thread cleans up.
        (30.0, signal.SIGINT, 130, b"stopped by Ctrl-C; every file is whole\n", 0),
        (30.0, signal.SIGTERM, 143, b"", 0),
        (30.0, signal.SIGHUP, 129, b"", 0),
    ],
)
def test_stopped_in_mid_write(
    folder: Path, run: Run, stuck: float, number: int, code: int, said: bytes, written: int
) -> None:
    process = run(".", "--write", stuck=stuck)
    wait_for((folder / "started").exists)
    assert len(names(folder)) == 5
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=20)
    assert (process.returncode, stdout, stderr) == (code, b"", said)
    assert names(folder) == ["a.py", "b.py", "c.py", "started"]
    texts = [(folder / name).read_text() for name in ("a.py", "b.py", "c.py")]
    assert texts == [fake.MIGRATED] * written + [fake.SOURCE] * (3 - written)


def test_a_reader_that_has_seen_enough(folder: Path, run: Run) -> None:
    for mode in ([], ["--diff"], ["--check"], ["--format", "json"]):
        process = run(".", *mode)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        stderr = process.stderr.read()
        assert process.wait(timeout=30) == 141, stderr
        assert b"Traceback" not in stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"], ids=["stdin", "stdout", "stderr"])
def test_a_stream_that_is_closed_from_the_start(folder: Path, run: Run, closed: str) -> None:
    process = run(".", command=("sh", "-c", f'exec "$0" "$@" {closed}'))
    stdout, stderr = process.communicate(timeout=30)
    assert b"Traceback" not in stderr
    if closed == ">&-":
        assert process.returncode == 2
        assert stderr == b"error: the standard output is closed; there is nowhere to write the result\n"
    else:
        assert process.returncode == 0, stderr
        assert b"3 files would be rewritten" in stdout


def read_all(terminal: int) -> bytes:
    drawn = b""
    # An error is how a terminal says that nobody is there any more.
    with suppress(OSError):
        while piece := os.read(terminal, 4096):
            drawn += piece
    os.close(terminal)
    return drawn


def test_a_bar_is_drawn_on_a_terminal_only(folder: Path, run: Run) -> None:
    assert run(".").communicate(timeout=30)[1] == b""
    ours, theirs = pty.openpty()
    process = run(".", stderr=theirs)
    os.close(theirs)
    drawn = read_all(ours)
    stdout, _ = process.communicate(timeout=30)
    assert b"migrating" in drawn
    assert b"3/3" in drawn
    assert b"\x1b" not in stdout


def test_a_terminal_gets_a_diff_in_colors_and_nothing_else(folder: Path, run: Run) -> None:
    (folder / "a.py").write_text("# \x1b[2J\r\n" + fake.SOURCE, encoding="utf-8")
    ours, theirs = pty.openpty()
    process = run("a.py", "--diff", stdout=theirs)
    os.close(theirs)
    shown = read_all(ours)
    assert process.wait(timeout=30) == 0
    assert b"\x1b[31m-class Mine(OldBuilder):\x1b[0m\r\n\x1b[32m+class Mine(NewBuilder):\x1b[0m\r\n" in shown
    assert "# \N{REPLACEMENT CHARACTER}[2J\r\n".encode() in shown


def test_torch_is_not_loaded_nor_libcst_before_it_is_needed(folder: Path, environment: dict[str, str]) -> None:
    script = (
        "import sys\n"
        "from genericbuilders.cli import main\n"
        "sys.argv = ['genericbuilders', 'migrate', *sys.argv[1:]]\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "sys.stderr.write(' '.join(sorted({'torch', 'numpy', 'libcst'} & set(sys.modules))))\n"
    )
    for arguments, loaded in ((["a.py"], "libcst"), (["--help"], "")):
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == loaded


def test_without_libcst(folder: Path, environment: dict[str, str]) -> None:
    script = (
        "import sys\n"
        "from genericbuilders.cli import main\n"
        "sys.modules['libcst'] = None\n"
        "sys.argv = ['genericbuilders', 'migrate', 'a.py']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: migrate needs libcst, which is not installed; run: pip install 'genericbuilders[migrate]'\n"
    )
