"""Shell scripts in the place of type checkers, through the variables that name the executables."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from genericbuilders.checkers import CHECKERS, Checker, NotFoundError

__all__ = ["HANGS", "install", "mypy_report", "mypy_says", "only", "variables"]

HANGS = "sleep 600 & wait"


def install(patch: pytest.MonkeyPatch, folder: Path, name: str, body: str, version: str = "9.9") -> Path:
    """Put a script in the place of the checker ``name``; ``body`` is what it does when it is to check."""
    script = folder / f"fake-{name}"
    lines = ("#!/bin/sh", f'if [ "$1" = --version ]; then echo "{name} {version}"; exit 0; fi', body)
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    script.chmod(0o755)
    patch.setenv(f"GENERICBUILDERS_{name.upper()}", str(script))
    return script


def only(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Have every checker missing, in this process, that is not among ``names`` and is not installed afterwards."""
    locate = Checker.locate

    def look(checker: Checker) -> Path:
        if checker.name in names or checker.variable in os.environ:
            return locate(checker)
        raise NotFoundError(f"{checker.name} is nowhere")

    patch.setattr(Checker, "locate", look)
    for checker in CHECKERS:
        if checker.name not in names:
            patch.delenv(checker.variable, raising=False)


def variables() -> dict[str, str]:
    """The variables that are set now: for a process whose environment was made before."""
    return {checker.variable: os.environ[checker.variable] for checker in CHECKERS if checker.variable in os.environ}


def mypy_report(path: Path | str, line: int, message: str = "no", severity: str = "error", code: str = "misc") -> str:
    """A line of mypy's machine output."""
    fields = {"file": str(path), "line": line, "column": 0, "message": message, "hint": None, "code": code}
    return json.dumps({**fields, "severity": severity})


def mypy_says(reports: Iterable[str], exit_code: int | None = None) -> str:
    """A script's body that writes reports, and ends as mypy would."""
    written = "\n".join(reports)
    code = exit_code if exit_code is not None else int('"severity": "error"' in written)
    return f"cat <<'END'\n{written}\nEND\nexit {code}"
