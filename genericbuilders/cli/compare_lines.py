"""Where checkers agree: the reports of several runs, put together line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from genericbuilders.checkers import Diagnostic, Run, Status

__all__ = ["Comparison", "Line", "Report", "compare_runs"]


@dataclass(frozen=True)
class Report:
    """What one run says about a line. ``fails``: at its level, that fails the run."""

    label: str
    diagnostic: Diagnostic
    fails: bool


@dataclass(frozen=True)
class Line:
    """A line on which some run has an error.

    Attributes:
        path: the file.
        number: counted from 1.
        source: the line's text; empty for a line beyond the file's end.
        reports: everything said about it, in the order of the runs.
        reporting: those of the runs that count which have an error here.
        silent: those of them that have none.
    """

    path: Path
    number: int
    source: str
    reports: tuple[Report, ...]
    reporting: tuple[str, ...]
    silent: tuple[str, ...]

    @property
    def agreed(self) -> bool:
        """Whether all of the runs that count have an error here, or none."""
        return not self.reporting or not self.silent


@dataclass(frozen=True)
class Comparison:
    """Runs over the same files, and the lines on which any of them has an error."""

    runs: tuple[Run, ...]
    lines: tuple[Line, ...]

    @cached_property
    def counted(self) -> tuple[Run, ...]:
        """The runs that saw every file to its end: only these can agree or differ."""
        return tuple(run for run in self.runs if run.status is Status.OK)

    @cached_property
    def unfinished(self) -> tuple[Run, ...]:
        """The runs that broke down, took too long or gave up."""
        return tuple(run for run in self.runs if run.status not in (Status.OK, Status.MISSING))

    @cached_property
    def differing(self) -> tuple[Line, ...]:
        """The lines on which the runs differ."""
        return tuple(line for line in self.lines if not line.agreed)

    @property
    def agreed(self) -> bool:
        """Whether every checker that is installed came to its end, and all have errors on the same lines."""
        return not self.unfinished and not self.differing


def compare_runs(runs: Sequence[Run], sources: dict[Path, list[str]]) -> Comparison:
    """Put runs together.

    Args:
        runs: over the same files.
        sources: the files' lines; their order is that of the result.
    """
    found: dict[tuple[Path, int], list[Report]] = {}
    for run in runs:
        failing = set(run.errors)
        for each in run.diagnostics:
            report = Report(run.label, each, each in failing)
            found.setdefault((each.path, each.line), []).append(report)
    counted = [(run.label, run.error_lines) for run in runs if run.status is Status.OK]
    order = {path: index for index, path in enumerate(sources)}
    lines: list[Line] = []
    for place in sorted(found, key=lambda place: (order[place[0]], place[1])):
        reports = found[place]
        if any(report.fails for report in reports):
            path, number = place
            text = sources[path][number - 1] if number <= len(sources[path]) else ""
            reporting = tuple(label for label, error_lines in counted if place in error_lines)
            silent = tuple(label for label, error_lines in counted if place not in error_lines)
            lines.append(Line(path, number, text, tuple(reports), reporting, silent))
    return Comparison(tuple(runs), tuple(lines))
