"""How a migration is shown: lines for a compiler's reader, diffs, a table for people, and JSON."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from genericbuilders.cli.migrate_diff import unified_diff
from genericbuilders.migration.files import Failure
from genericbuilders.migration.result import ClassReport, FileResult, Finding, Outcome, Target
from genericbuilders.migration.run import Run

__all__ = ["Form", "Mode", "Report", "printable", "render", "write_stdout"]

JSON_VERSION = 1
FILE_WIDTH = 160
RULE_WIDTH = 44
STYLES = {Outcome.MIGRATED: "green", Outcome.UNCHANGED: "dim", Outcome.REFUSED: "red"}


class Mode(StrEnum):
    """What a run is for."""

    REPORT = "report"
    CHECK = "check"
    DIFF = "diff"
    WRITE = "write"


class Form(StrEnum):
    """The form of a report."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True)
class Report:
    """A run that is over.

    Attributes:
        run: what came of it.
        mode: what it was for.
        target: what builders are rewritten to.
        folder: the current one, absolute.
        written: files that were rewritten.
        failures: those of the run, and files that could not be rewritten.
        seconds: that it all took.
    """

    run: Run
    mode: Mode
    target: Target
    folder: Path
    written: tuple[Path, ...]
    failures: tuple[Failure, ...]
    seconds: float

    def short(self, path: Path) -> str:
        """A path as a person in the current folder would write it."""
        return str(path.relative_to(self.folder)) if self.folder in path.parents else str(path)

    @cached_property
    def outcomes(self) -> Counter[Outcome]:
        """How many classes had each outcome."""
        return Counter(each.outcome for result in self.run.results for each in result.classes)

    @property
    def verdict(self) -> str:
        """The run in a sentence or two."""
        classes = f"{_count(self.outcomes.total(), 'builder class', 'es')}"
        outcomes = ", ".join(f"{self.outcomes[outcome]} {outcome}" for outcome in Outcome)
        front = f"{_count(len(self.run.sources), 'file')}, {classes} ({outcomes})"
        failed = f"; {_count(len(self.failures), 'file')} skipped" if self.failures else ""
        if self.mode is Mode.WRITE:
            were = "was" if len(self.written) == 1 else "were"
            return f"{front}: {_count(len(self.written), 'file')} {were} rewritten{failed}."
        would = f"{front}: {_count(len(self.run.changed), 'file')} would be rewritten{failed}."
        if self.mode is not Mode.REPORT:
            return would
        hint = ": --diff shows the changes, --write makes them" if self.run.changed else ""
        return f"{would} This is a report only, nothing was written{hint}."


def render(report: Report, form: Form) -> bytes:
    """The report as a file has it."""
    if form is Form.JSON:
        return f"{_json(report)}\n".encode()
    text = io.StringIO()
    _print_table(_Console(file=text, highlight=False, width=FILE_WIDTH, color_system=None), report)
    return text.getvalue().encode(errors="replace")


def write_stdout(out: TextIO, report: Report, form: Form | None) -> None:
    """Write what a mode shows on standard output.

    Args:
        out: a terminal, or a file, which gets long lines, no colours, and diffs byte for byte.
        report: what is shown.
        form: of the report; ``None``: it has gone elsewhere.
    """
    if form is Form.JSON:
        out.write(_json(report) + "\n")
        return
    _forgive(out)
    if report.mode is Mode.DIFF:
        _write_diffs(out, report)
    elif report.mode is Mode.CHECK:
        for line in check_lines(report):
            out.write(line + "\n")
    elif form is Form.TABLE:
        console = _Console(file=out, highlight=False)
        if not console.is_terminal:
            console = _Console(file=out, highlight=False, width=max(console.width, FILE_WIDTH))
        _print_table(console, report)


def check_lines(report: Report) -> Iterator[str]:
    """What would change, as ``file:line:column: rule: message``, at least one line for each such file."""
    for result in report.run.changed:
        path = _on_one_line(report.short(result.path))
        changes = [each for each in _findings(result) if each.changes]
        for each in changes or [Finding(1, 1, "rewrite", "the file would be rewritten", True)]:
            message = _on_one_line(" ".join(each.message.split()))
            yield f"{path}:{each.line}:{each.column}: {each.rule}: {message}"


def printable(text: str) -> str:
    """The text without what could move a terminal's cursor or change its colours."""
    return "".join(char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text)


def _on_one_line(text: str) -> str:
    """`printable`, for a format that has a line for each finding: a name with a line end must not make another."""
    return printable(text).replace("\n", "\N{REPLACEMENT CHARACTER}")


class _Console(Console):
    """rich would end the program with an exit code that has another meaning here."""

    @override
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _write_diffs(out: TextIO, report: Report) -> None:
    terminal = out.isatty()
    raw = None if terminal else _bytes_of(out)
    for result in report.run.changed:
        diff = unified_diff(report.run.sources[result.path], result.after, report.short(result.path))
        if raw is not None:
            out.flush()
            raw.write(diff.data)
        else:
            for line in diff.text.split("\n")[:-1]:
                shown = printable(line.replace("\t", "    ").removesuffix("\r"))
                out.write((_colored(shown) if terminal else shown) + "\n")


def _forgive(out: TextIO) -> None:
    """A terminal that cannot show a character is no reason to stop."""
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="replace")


def _bytes_of(out: TextIO) -> BinaryIO | None:
    try:
        return out.buffer
    except AttributeError:
        return None


def _colored(line: str) -> str:
    colors = {"+": "green", "-": "red", "@": "cyan"}
    return typer.style(line, fg=colors[line[0]]) if line[:1] in colors else line


def _print_table(console: Console, report: Report) -> None:
    for result in report.run.results:
        state = "rewritten" if result.path in report.written else "would change" if result.changed else "stays"
        console.print(Text.assemble((printable(report.short(result.path)), "bold"), f"  {state}"))
        console.print(_file_table(result))
        console.print()
    for failure in report.failures:
        told = f"skipped: {printable(report.short(failure.path))}: {printable(failure.reason)}"
        console.print(Text(told), soft_wrap=True)
    rules = _rules(report)
    if rules:
        table = Table("rule", box=None, pad_edge=False)
        table.add_column("changes", justify="right")
        table.add_column("left", justify="right")
        for rule, (changes, left) in rules.items():
            table.add_row(Text(printable(rule)), str(changes), str(left))
        console.print(table)
        console.print()
    console.print(Text(report.verdict), soft_wrap=True)


def _file_table(result: FileResult) -> Table:
    table = Table("line", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("class or rule", max_width=RULE_WIDTH, overflow="fold")
    table.add_column("result", no_wrap=True)
    table.add_column("what", overflow="fold")
    for each in sorted(result.classes, key=lambda each: each.line):
        told = Text(each.outcome.value, STYLES[each.outcome])
        table.add_row(str(each.line), Text(printable(each.name), "bold"), told, Text(printable(_spec(each))))
        for finding in _in_order(each.findings):
            table.add_row(*_finding_cells(finding, "  "))
    for finding in _in_order(result.findings):
        table.add_row(*_finding_cells(finding, ""))
    return table


def _spec(each: ClassReport) -> str:
    if each.spec is None:
        return "spec unknown" if each.evidence is None else f"spec unknown: {each.evidence}"
    return each.spec if each.evidence is None else f"{each.spec}, told by {each.evidence}"


def _finding_cells(finding: Finding, indent: str) -> tuple[Text, Text, Text, Text]:
    return (
        Text(f"{finding.line}:{finding.column}"),
        Text(indent + printable(finding.rule)),
        Text("changes", "green") if finding.changes else Text("left", "yellow"),
        Text(printable(finding.message)),
    )


def _findings(result: FileResult) -> tuple[Finding, ...]:
    return _in_order((*result.findings, *(finding for each in result.classes for finding in each.findings)))


def _in_order(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: (finding.line, finding.column)))


def _rules(report: Report) -> dict[str, tuple[int, int]]:
    """For each rule how often it changes something, and how often something is left."""
    every = [finding for result in report.run.results for finding in _findings(result)]
    changes = Counter(finding.rule for finding in every if finding.changes)
    left = Counter(finding.rule for finding in every if not finding.changes)
    return {rule: (changes[rule], left[rule]) for rule in sorted({*changes, *left})}


def _json(report: Report) -> str:
    """One JSON object; all characters in ASCII, so that no locale can spoil it."""
    whole = {
        "version": JSON_VERSION,
        "mode": report.mode.value,
        "target": report.target.value,
        "root": str(report.folder),
        "seconds": round(report.seconds, 3),
        "counts": {
            "files": len(report.run.sources),
            "files_changed": len(report.run.changed),
            "files_written": len(report.written),
            "files_failed": len(report.failures),
            "classes": report.outcomes.total(),
            **{outcome.value: report.outcomes[outcome] for outcome in Outcome},
        },
        "rules": {rule: {"changes": changes, "left": left} for rule, (changes, left) in _rules(report).items()},
        "files": [_file_fields(result, report) for result in report.run.results],
        "failures": [{"path": report.short(each.path), "reason": each.reason} for each in report.failures],
    }
    return json.dumps(whole)


def _file_fields(result: FileResult, report: Report) -> dict[str, object]:
    short = report.short(result.path)
    wanted = report.mode is Mode.DIFF and result.changed
    return {
        "path": short,
        "changed": result.changed,
        "written": result.path in report.written,
        "diff": unified_diff(report.run.sources[result.path], result.after, short).text if wanted else None,
        "classes": [
            {
                "name": each.name,
                "line": each.line,
                "outcome": each.outcome.value,
                "spec": each.spec,
                "evidence": each.evidence,
                "findings": [_finding_fields(finding) for finding in each.findings],
            }
            for each in result.classes
        ],
        "findings": [_finding_fields(finding) for finding in result.findings],
    }


def _finding_fields(finding: Finding) -> dict[str, object]:
    return {
        "line": finding.line,
        "column": finding.column,
        "rule": finding.rule,
        "message": finding.message,
        "changes": finding.changes,
    }


def _count(number: int, thing: str, plural: str = "s") -> str:
    return f"{number} {thing}{'' if number == 1 else plural}"
