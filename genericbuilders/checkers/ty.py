"""ty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

from genericbuilders.checkers.checker import Checker, Command, Level, Output, Request
from genericbuilders.checkers.diagnostic import Diagnostic, Severity
from genericbuilders.checkers.fields import Record, records

__all__ = ["Ty"]

# GitLab's words. The fourth, critical, is for ty's own breakdowns.
SEVERITIES = {"major": Severity.ERROR, "minor": Severity.WARNING, "info": Severity.INFORMATION}


class Ty(Checker):
    """ty."""

    name: ClassVar[str] = "ty"
    package: ClassVar[str] = "ty"
    tested: ClassVar[str] = "0.0.108"
    levels: ClassVar[tuple[Level, ...]] = (Level("default"), Level("all", arguments=("--error=all",)))

    def command(self, executable: Path, level: Level, request: Request, scratch: Path) -> Command:
        """See `Checker.command`."""
        roots = ", ".join(json.dumps(str(path), ensure_ascii=False) for path in request.import_paths)
        configuration = scratch / "ty.toml"
        configuration.write_text(f"[environment]\nroot = [{roots}]\n", encoding="utf-8")
        arguments = (
            str(executable),
            "check",
            *level.arguments,
            f"--config-file={configuration}",
            # Else the request's folder is the project, and a pyproject.toml in it, or above it, would count.
            f"--project={scratch}",
            "--output-format=gitlab",
            "--no-progress",
            "--color=never",
            f"--python-version={request.python_version}",
            f"--python={request.python}",
            "--no-respect-ignore-files",
            "--no-force-exclude",
            "--",
            *map(str, request.files),
        )
        # The user's own ty.toml would be added to that configuration.
        return Command(arguments, {"XDG_CONFIG_HOME": str(scratch)})

    def parse(self, output: Output, request: Request) -> tuple[Diagnostic, ...]:
        """See `Checker.parse`."""
        return tuple(_diagnostic(record) for record in records(output.stdout))


def _diagnostic(record: Record) -> Diagnostic:
    location = record.record("location")
    begin = location.record("positions").record("begin")
    rule = record.text("check_name")
    return Diagnostic(
        path=Path(location.text("path")),
        line=begin.whole("line"),
        column=begin.whole("column"),
        severity=record.choice("severity", SEVERITIES),
        code=rule,
        message=record.text("description").removeprefix(f"{rule}: "),
    )
