"""One command in a process group of its own: limited, measured, and gone when it is over."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event
from typing import IO

from genericbuilders.checkers import launcher
from genericbuilders.checkers.checker import Command, Output
from genericbuilders.checkers.fields import read_json

__all__ = ["Finished", "Stopped", "execute"]

POLL_SECONDS = 0.05
MAX_OUTPUT_BYTES = 256 * 1024 * 1024
TIMED_OUT = ""
# Variables of the checkers themselves, and of environments other than the one that was asked for.
FOREIGN_PREFIXES = ("MYPY", "PYREFLY_", "TY_", "ZUBAN_", "BASEDPYRIGHT_")
FOREIGN = (
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "FORCE_COLOR",
    "CLICOLOR_FORCE",
    # These two make pyright fetch another version than the one that is installed.
    "PYRIGHT_PYTHON_FORCE_VERSION",
    "PYRIGHT_PYTHON_PYLANCE_VERSION",
)
OWN = {"PYTHONUTF8": "1", "NO_COLOR": "1", "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "TERM": "dumb"}


@dataclass(frozen=True)
class Finished:
    """A command that ended by itself.

    Attributes:
        output: what it wrote, and its exit code.
        seconds: wall-clock time.
        peak_bytes: the most resident memory of its biggest process, children included that it waited for.
    """

    output: Output
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Stopped:
    """A command that was ended from outside; ``timed_out``: by its time limit. ``reason`` says why."""

    reason: str
    timed_out: bool
    stderr: str
    seconds: float


def execute(command: Command, folder: Path, time_limit: float, stop: Event | None = None) -> Finished | Stopped:
    """Run a command and wait for it. Whatever it started in its process group is gone afterwards.

    Args:
        command: what to run; it reads nothing.
        folder: its working directory.
        time_limit: seconds, after which it is killed.
        stop: set by another thread to have it killed.
    """
    with TemporaryFile() as out, TemporaryFile() as err, _started(command, folder, out, err) as running:
        began = time.monotonic()
        ending = _wait(running, began + time_limit, (out, err), stop)
        seconds = time.monotonic() - began
        _kill(running.process)
        if ending is not None:
            reason = ending or f"not done after {time_limit:g} s"
            return Stopped(reason, ending == TIMED_OUT, _text(err), seconds)
        if not running.report:
            return Stopped("it was killed from outside", False, _text(err), seconds)
        told = read_json(running.report.decode(), "the launcher's report")
        if error := told.optional_text("error"):
            return Stopped(error, False, _text(err), seconds)
        output = Output(_text(out), _text(err), told.whole("exit_code"))
        return Finished(output, told.number("seconds"), told.whole("peak_bytes"))


@dataclass
class _Running:
    """A launcher, the pipe that it writes its report to, and what came through that so far."""

    process: subprocess.Popen[bytes]
    pipe: int
    report: bytes = b""


@contextmanager
def _started(command: Command, folder: Path, out: IO[bytes], err: IO[bytes]) -> Generator[_Running, None, None]:
    reader, result = os.pipe()
    lifeline, held = os.pipe()
    process: subprocess.Popen[bytes] | None = None
    try:
        # Neither site-packages nor the user's variables: only what starts fast.
        arguments = (sys.executable, "-I", "-S", launcher.__file__, str(result), str(lifeline), *command.arguments)
        try:
            process = subprocess.Popen(
                arguments,
                cwd=folder,
                env=_environment(command.variables),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                pass_fds=(result, lifeline),
                start_new_session=True,
            )
        finally:
            os.close(result)
            os.close(lifeline)
        yield _Running(process, reader)
    finally:
        if process is not None:
            _kill(process)
        os.close(held)
        os.close(reader)


def _wait(running: _Running, deadline: float, written: tuple[IO[bytes], ...], stop: Event | None) -> str | None:
    """Wait for the end. ``None``: it came; else why it is not waited for any longer."""
    while True:
        ready, _, _ = select.select([running.pipe], [], [], POLL_SECONDS)
        if ready:
            chunk = os.read(running.pipe, 65536)
            if not chunk:
                return None
            running.report += chunk
            continue
        if stop is not None and stop.is_set():
            return "stopped"
        if any(os.fstat(file.fileno()).st_size > MAX_OUTPUT_BYTES for file in written):
            return f"it wrote more than {MAX_OUTPUT_BYTES >> 20} MiB"
        if time.monotonic() > deadline:
            return TIMED_OUT


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the group. The launcher is reaped last: until then nobody else can have the group's number."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in FOREIGN and not name.startswith(FOREIGN_PREFIXES)
    }
    return {**kept, **OWN, **variables}


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MAX_OUTPUT_BYTES).decode("utf-8", errors="replace")
