"""zuban."""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import ClassVar

from genericbuilders.checkers.checker import Checker, Command, Level, Output, OutputError, Request
from genericbuilders.checkers.diagnostic import Diagnostic, Severity

__all__ = ["Zuban"]

SEVERITIES = {"error": Severity.ERROR, "warning": Severity.WARNING, "note": Severity.INFORMATION}
# path:line:column: severity: message  [code]; the code may be missing.
LINE = re.compile(r"(?P<path>.+?):(?P<line>\d+):(?P<column>\d+): (?P<severity>\w+): (?P<rest>.*)", re.DOTALL)
REST = re.compile(r"(?P<message>.*?)  \[(?P<code>[\w-]+)\]", re.DOTALL)
EXCERPT = 120


class Zuban(Checker):
    """zuban. It has no machine output, so its lines are read, every one.

    Its licence is the AGPL: it runs as a process where somebody has installed it, and nothing depends on it.
    """

    name: ClassVar[str] = "zuban"
    package: ClassVar[str] = "zuban"
    tested: ClassVar[str] = "0.11.1"
    takes_patterns: ClassVar[bool] = True
    levels: ClassVar[tuple[Level, ...]] = (Level("strict", arguments=("--strict",)),)

    def command(self, executable: Path, level: Level, request: Request, scratch: Path) -> Command:
        """See `Checker.command`."""
        empty = scratch / "mypy.ini"
        empty.write_text("[mypy]\n", encoding="utf-8")
        arguments = (
            str(executable),
            "check",
            *level.arguments,
            f"--config-file={empty}",
            "--show-column-numbers",
            "--show-error-codes",
            "--no-pretty",
            "--no-error-summary",
            f"--python-version={request.python_version}",
            f"--python-executable={request.python}",
            *(f"--extra-search-path={path}" for path in request.import_paths),
            "--",
            # It takes patterns, and a name with brackets for one.
            *(glob.escape(str(file)) for file in request.files),
        )
        return Command(arguments)

    def parse(self, output: Output, request: Request) -> tuple[Diagnostic, ...]:
        """See `Checker.parse`."""
        # Only at line feeds: a message quotes source text, which may hold other characters that end a line.
        lines = output.stdout.split("\n")
        return tuple(_diagnostic(line, number) for number, line in enumerate(lines, 1) if line.strip())


def _diagnostic(line: str, number: int) -> Diagnostic:
    found = LINE.fullmatch(line)
    severity = None if found is None else SEVERITIES.get(found["severity"])
    if found is None or severity is None:
        raise OutputError(f"line {number} of output is no report: {line[:EXCERPT]!r}")
    rest = REST.fullmatch(found["rest"])
    return Diagnostic(
        path=Path(found["path"]),
        line=max(1, int(found["line"])),
        column=max(1, int(found["column"])),
        severity=severity,
        code="" if rest is None else rest["code"],
        message=found["rest"] if rest is None else rest["message"],
    )
