"""pyrefly."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import ClassVar

from genericbuilders.checkers.checker import Checker, Command, Level, Output, Request
from genericbuilders.checkers.diagnostic import Diagnostic, Severity
from genericbuilders.checkers.fields import Record, read_json

__all__ = ["Pyrefly"]

SEVERITIES = {"error": Severity.ERROR, "warn": Severity.WARNING, "info": Severity.INFORMATION}


class Pyrefly(Checker):
    """pyrefly. Without a preset it takes, where nothing is configured, one that reports almost nothing."""

    name: ClassVar[str] = "pyrefly"
    package: ClassVar[str] = "pyrefly"
    tested: ClassVar[str] = "1.5.0"
    takes_patterns: ClassVar[bool] = True
    levels: ClassVar[tuple[Level, ...]] = tuple(
        Level(preset, arguments=("--preset", preset)) for preset in ("basic", "default", "strict")
    )

    def command(self, executable: Path, level: Level, request: Request, scratch: Path) -> Command:
        """See `Checker.command`."""
        empty = scratch / "pyrefly.toml"
        empty.touch()
        arguments = (
            str(executable),
            "check",
            *level.arguments,
            f"--config={empty}",
            "--output-format=json",
            "--progress-bar=no",
            "--color=never",
            f"--python-version={request.python_version}",
            f"--python-interpreter-path={request.python}",
            *(f"--search-path={path}" for path in request.import_paths),
            "--disable-search-path-heuristics=true",
            # By default files in folders such as node_modules are left out, silently, also where they are named.
            "--disable-project-excludes-heuristics=true",
            "--use-ignore-files=false",
            "--",
            # It takes patterns, and a name with brackets for one.
            *(glob.escape(str(file)) for file in request.files),
        )
        return Command(arguments)

    def parse(self, output: Output, request: Request) -> tuple[Diagnostic, ...]:
        """See `Checker.parse`."""
        return tuple(_diagnostic(record) for record in read_json(output.stdout).records("errors"))


def _diagnostic(record: Record) -> Diagnostic:
    return Diagnostic(
        path=Path(record.text("path")),
        line=max(1, record.whole("line")),
        column=max(1, record.whole("column")),
        severity=record.choice("severity", SEVERITIES),
        code=record.text("name"),
        message=record.text("description"),
    )
