"""``report``."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from typecheck.report.answers import answer
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


def tell(json: bool, html: Path | None, folder: Path = FOLDER) -> int:
    """Tell what the results say; the exit code: 0, or 2 where they cannot be read or the page cannot be written.

    Args:
        json: as one JSON object instead of tables.
        html: where to write the page; no tables are shown then.
        folder: the study's.
    """
    complain = Console(stderr=True, style="red", highlight=False, markup=False, soft_wrap=True)
    try:
        evidence = read_evidence(folder, labels())
        summary = summarise(evidence)
    except (ValueError, LookupError) as error:
        complain.print(str(error.args[0]))
        return 2
    answers = answer(summary)
    if html is not None:
        told = [*sections(summary), *cost_sections(summary)]
        try:
            html.parent.mkdir(parents=True, exist_ok=True)
            _ = html.write_text(page(heat_map(evidence.corpus, evidence.results), answers, told), encoding="utf-8")
        except OSError as error:
            complain.print(f"{html} cannot be written: {error.strerror}")
            return 2
    console = Console(highlight=False, markup=False)
    if json:
        _ = sys.stdout.write(machine(summary, answers))
    elif html is not None:
        console.print(str(html), soft_wrap=True)
    else:
        if not console.is_terminal:
            console.width = PIPE_WIDTH
        show(console, answers, [*sections(summary), *cost_sections(summary)])
    return 0
