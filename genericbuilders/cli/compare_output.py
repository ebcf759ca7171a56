"""How a comparison is shown: for people, and as JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from genericbuilders.checkers import CHECKERS, Request, Run, Status
from genericbuilders.cli.compare_lines import Comparison, Line, Report

__all__ = ["Surroundings", "install_command", "write_json", "write_text"]

MIN_FILE_WIDTH = 160
WHO_WIDTH = 44
STYLES = {"error": "red", "warning": "yellow", "information": "dim", "silent": "dim"}
ENDINGS = {
    Status.BLOCKED: "gave up, and does not count",
    Status.CRASHED: "broke down, and does not count",
    Status.TIMED_OUT: "took too long, and does not count",
}


@dataclass(frozen=True)
class Surroundings:
    """What a comparison was made on: the request, files that were left out, with the reasons, the current folder."""

    request: Request
    left_out: tuple[tuple[Path, str], ...]
    folder: Path

    def short(self, path: Path) -> str:
        """A path as a person in the current folder would write it."""
        return _below(self.folder, path)

    def name(self, path: Path) -> str:
        """A path as the request's root has it."""
        return _below(self.request.root, path)


def install_command(run: Run) -> str | None:
    """What installs a run's checker, where it is missing."""
    if run.status is not Status.MISSING:
        return None
    return next((checker.install_command for checker in CHECKERS if checker.name == run.checker), None)


def write_json(out: TextIO, comparison: Comparison, surroundings: Surroundings) -> None:
    """Write one JSON object; all characters in ASCII, so that no locale can spoil it."""
    request = surroundings.request
    whole = {
        "agree": comparison.agreed,
        "root": str(request.root),
        "python": str(request.python),
        "python_version": request.python_version,
        "search_paths": [str(path) for path in request.search_paths],
        "files": [surroundings.name(path) for path in request.files],
        "left_out": [{"path": surroundings.name(path), "reason": why} for path, why in surroundings.left_out],
        "runs": [_run_fields(run) for run in comparison.runs],
        "lines": [_line_fields(line, surroundings) for line in comparison.lines],
    }
    out.write(json.dumps(whole) + "\n")


def write_text(out: TextIO, comparison: Comparison, surroundings: Surroundings, every_line: bool) -> None:
    """Write the lines on which the runs differ, or every line with an error, then the runs and a sentence.

    Args:
        out: a terminal, or a file, which gets long lines and no colours.
        comparison: what to show.
        surroundings: of the comparison.
        every_line: also those on which all agree.
    """
    _forgive(out)
    console = _Console(file=out, highlight=False)
    if not console.is_terminal:
        console = _Console(file=out, highlight=False, width=max(console.width, MIN_FILE_WIDTH))
    for line in comparison.lines if every_line else comparison.differing:
        _print_line(console, line, comparison, surroundings)
    console.print(_runs_table(comparison))
    for run in comparison.unfinished:
        console.print(Text(f"\n{run.label} {ENDINGS[run.status]}: {_printable(run.reason or '')}"))
    for reason in dict.fromkeys(run.reason for run in comparison.runs if run.status is Status.MISSING):
        console.print(Text(f"\nnot installed: {_printable(reason or '')}"))
    console.print(Text(f"\n{verdict(comparison, len(surroundings.request.files))}"))


def verdict(comparison: Comparison, num_files: int) -> str:
    """The comparison in a sentence."""
    levels, differing = len(comparison.counted), len(comparison.differing)
    # What only runs said that do not count is no part of it, as it is none of the table.
    lines = sum(bool(line.reporting) for line in comparison.lines)
    front = f"{_count(num_files, 'file')}, {_count(levels, 'level')}, {_count(lines, 'line')} with errors"
    if differing:
        return f"{front}: the levels differ on {differing}, and agree on {lines - differing}."
    if comparison.unfinished:
        return f"{front}: no difference, but not every level came to its end."
    if levels == 1:
        return f"{front}: one level has nothing to be compared with."
    return f"{front}: all agree."


class _Console(Console):
    """rich would end the program with an exit code that has another meaning here."""

    @override
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _print_line(console: Console, line: Line, comparison: Comparison, surroundings: Surroundings) -> None:
    source = _printable(line.source.strip())
    place = _printable(f"{surroundings.short(line.path)}:{line.number}")
    console.print(Text.assemble((place, "bold"), "  ", (source, "cyan")))
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(max_width=WHO_WIDTH)
    table.add_column(overflow="fold")
    said: dict[tuple[str, str], list[str]] = {}
    for report in line.reports:
        said.setdefault((_kind(report), _message(report)), []).append(report.label)
    for (kind, message), labels in said.items():
        table.add_row(Text(f"  {kind}", STYLES[kind]), Text(_names(labels, comparison.runs)), Text(message))
    # Who only warns is silent as far as errors go, but is in the list already.
    heard = {report.label for report in line.reports}
    quiet = [label for label in line.silent if label not in heard]
    if quiet:
        table.add_row(Text("  silent", STYLES["silent"]), Text(_names(quiet, comparison.runs)), Text())
    console.print(table)
    console.print()


def _kind(report: Report) -> str:
    return "error" if report.fails else report.diagnostic.severity.value


def _message(report: Report) -> str:
    code = f"  [{report.diagnostic.code}]" if report.diagnostic.code else ""
    return _printable(report.diagnostic.message) + code


def _names(labels: Iterable[str], runs: Sequence[Run]) -> str:
    """Labels, those of one checker together, such as ``mypy (default, strict)``."""
    wanted = set(labels)
    levels: dict[str, list[str]] = {}
    for run in runs:
        if run.label in wanted:
            levels.setdefault(run.checker, []).append(run.level)
    return ", ".join(f"{checker} ({', '.join(names)})" for checker, names in levels.items())


def _runs_table(comparison: Comparison) -> Table:
    table = Table("checker", "version", "level", "result", box=None, pad_edge=False)
    for title in ("lines with errors", "of these only here", "seconds"):
        table.add_column(title, justify="right")
    alone = [line.reporting[0] for line in comparison.lines if len(line.reporting) == 1]
    for run in comparison.runs:
        counts = run.status is Status.OK
        cells = (
            run.checker,
            run.version or "-",
            run.level,
            run.status.value.replace("_", " "),
            str(len(run.error_lines)) if counts else "-",
            str(alone.count(run.label)) if counts else "-",
            "-" if run.status is Status.MISSING else f"{run.seconds:.1f}",
        )
        table.add_row(*map(Text, cells))
    return table


def _run_fields(run: Run) -> dict[str, str | int | float | None]:
    return {
        "label": run.label,
        "checker": run.checker,
        "level": run.level,
        "version": run.version,
        "status": run.status.value,
        "reason": run.reason,
        "install": install_command(run),
        "errors": len(run.errors),
        "error_lines": len(run.error_lines),
        "seconds": round(run.seconds, 3),
        "peak_bytes": run.peak_bytes,
    }


def _line_fields(line: Line, surroundings: Surroundings) -> dict[str, object]:
    return {
        "path": surroundings.name(line.path),
        "line": line.number,
        "source": line.source,
        "agree": line.agreed,
        "reporting": list(line.reporting),
        "silent": list(line.silent),
        "reports": [
            {
                "label": report.label,
                "column": report.diagnostic.column,
                "severity": report.diagnostic.severity.value,
                "fails": report.fails,
                "code": report.diagnostic.code,
                "message": report.diagnostic.message,
            }
            for report in line.reports
        ],
    }


def _printable(text: str) -> str:
    """The text without what could move a terminal's cursor or change its colours."""
    # pyright indents with no-break spaces.
    shown = text.replace("\t", "    ").replace("\N{NO-BREAK SPACE}", " ")
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in shown)


def _below(folder: Path, path: Path) -> str:
    return str(path.relative_to(folder)) if folder in path.parents else str(path)


def _forgive(out: TextIO) -> None:
    """A terminal that cannot show a character is no reason to stop."""
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="replace")


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
