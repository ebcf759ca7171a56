"""The report as a page of the documentation: the answers argued, with the figures that they rest on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from typecheck.corpus import Design
from typecheck.explain import MYPY, PYRIGHT
from typecheck.report.answers import Answer
from typecheck.report.figures import AIM
from typecheck.report.summary import Summary

__all__ = ["argument"]

TEMPLATE = "argument.md.jinja"


def argument(summary: Summary, answers: Sequence[Answer]) -> str:
    """The text; the same for the same figures, whenever it is made."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(TEMPLATE).render(
        summary=summary,
        answers={each.question: each for each in answers},
        designs=list(Design),
        generic=Design.GENERIC,
        widened=Design.WIDENED,
        strictest=(MYPY, PYRIGHT),
        aim=AIM,
    )
