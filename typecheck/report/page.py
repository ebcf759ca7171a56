"""The report as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from typecheck.report.answers import Answer
from typecheck.report.heat import HeatMap
from typecheck.report.layout import Section

__all__ = ["page"]

TEMPLATE = "page.html.jinja"


def page(heat: HeatMap, answers: Sequence[Answer], sections: Sequence[Section]) -> str:
    """The text; the same for the same figures, whenever it is made."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(TEMPLATE).render(heat=heat, answers=answers, sections=sections)
