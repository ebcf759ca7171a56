"""pyright and basedpyright."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

from genericbuilders.checkers.checker import Checker, Command, Level, Output, OutputError, Request
from genericbuilders.checkers.diagnostic import Diagnostic, Severity
from genericbuilders.checkers.fields import Record, read_json

__all__ = ["BasedPyright", "Pyright"]

MODE = "typeCheckingMode"
SEVERITIES = {"error": Severity.ERROR, "warning": Severity.WARNING, "information": Severity.INFORMATION}


class Pyright(Checker):
    """pyright. Its mode has no option, only a key in a configuration file, which also replaces the project's own."""

    name: ClassVar[str] = "pyright"
    package: ClassVar[str] = "pyright"
    tested: ClassVar[str] = "1.1.414"
    levels: ClassVar[tuple[Level, ...]] = tuple(
        Level(mode, settings=((MODE, mode),)) for mode in ("basic", "standard", "strict")
    )
    weight: ClassVar[float] = 3.0

    def command(self, executable: Path, level: Level, request: Request, scratch: Path) -> Command:
        """See `Checker.command`."""
        settings: dict[str, str | list[str]] = {
            **dict(level.settings),
            "pythonVersion": request.python_version,
            "extraPaths": [str(path) for path in request.import_paths],
            # By default hidden folders are left out, also where a file in one is named.
            "exclude": [],
        }
        configuration = scratch / "pyrightconfig.json"
        configuration.write_text(json.dumps(settings), encoding="utf-8")
        options = ("--outputjson", "--project", str(configuration), "--pythonpath", str(request.python))
        return Command((str(executable), *options, *map(str, request.files)))

    def parse(self, output: Output, request: Request) -> tuple[Diagnostic, ...]:
        """See `Checker.parse`."""
        whole = read_json(output.stdout)
        seen, asked = whole.record("summary").whole("filesAnalyzed"), len(set(request.files))
        if seen != asked:
            raise OutputError(f"it says that it has checked {seen} files, not {asked}")
        return tuple(_diagnostic(record) for record in whole.records("generalDiagnostics"))


class BasedPyright(Pyright):
    """basedpyright. At its recommended level warnings fail a run."""

    name: ClassVar[str] = "basedpyright"
    package: ClassVar[str] = "basedpyright"
    tested: ClassVar[str] = "1.40.2"
    levels: ClassVar[tuple[Level, ...]] = (
        Level("recommended", settings=((MODE, "recommended"),), counts_warnings=True),
    )


def _diagnostic(record: Record) -> Diagnostic:
    # What concerns a whole file has no range.
    start = record.record("range").record("start") if "range" in record.values else None
    return Diagnostic(
        path=Path(record.text("file")),
        line=1 if start is None else start.whole("line") + 1,
        column=1 if start is None else start.whole("character") + 1,
        severity=record.choice("severity", SEVERITIES),
        code=record.optional_text("rule"),
        message=record.text("message"),
    )
