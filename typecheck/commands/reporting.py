"""``report``."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from typing_extensions import override

from genericbuilders.cli.errors import ExitCode, discard
from typecheck.report.answers import answer
from typecheck.report.argument import argument
from typecheck.report.cost_sections import cost_sections
from typecheck.report.evidence import read_evidence
from typecheck.report.heat import heat_map
from typecheck.report.machine import machine
from typecheck.report.page import page
from typecheck.report.sections import sections
from typecheck.report.summary import summarise
from typecheck.report.tables import show
from typecheck.study import FOLDER, labels

__all__ = ["tell"]

PIPE_WIDTH = 180


def tell(json: bool, html: Path | None, markdown: Path | None = None, folder: Path = FOLDER) -> int:
    """Tell what the results say.

    The exit code is 0, 2 where they cannot be read or something cannot be written, 141 where the reader has gone.

    Args:
        json: as one JSON object instead of tables.
        html: where to write the page that stands alone.
        markdown: where to write the page of the documentation. No tables are shown where a page is written.
        folder: the study's.
    """
    complain = Console(stderr=True, style="red", highlight=False, markup=False, soft_wrap=True)
    try:
        evidence = read_evidence(folder, labels())
        summary = summarise(evidence)
    except (ValueError, LookupError) as error:
        complain.print(str(error.args[0]))
        return ExitCode.BAD_INPUT
    answers = answer(summary)
    told = [*sections(summary), *cost_sections(summary)]
    pages: dict[Path, str] = {}
    if html is not None:
        pages[html] = page(heat_map(evidence.corpus, evidence.results), answers, told)
    if markdown is not None:
        pages[markdown] = argument(summary, answers)
    for path, text in pages.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _ = path.write_text(text, encoding="utf-8")
        except OSError as error:
            complain.print(f"{path} cannot be written: {error.strerror}")
            return ExitCode.BAD_INPUT
    if sys.stdout is None:
        complain.print("the standard output is closed; there is nowhere to write the report")
        return ExitCode.BAD_INPUT
    console = _Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    try:
        if json:
            _ = sys.stdout.write(machine(summary, answers))
        elif pages:
            for path in pages:
                console.print(str(path), soft_wrap=True)
        else:
            show(console, answers, told)
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
        return ExitCode.BROKEN_PIPE
    except OSError as error:
        discard(sys.stdout)
        complain.print(f"the report cannot be written: {error.strerror or error}")
        return ExitCode.BAD_INPUT
    return ExitCode.OK


class _Console(Console):
    """rich would end the program with an exit code that has another meaning here."""

    @override
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
