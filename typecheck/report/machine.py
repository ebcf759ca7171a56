"""The report as one JSON object: every figure, and the answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from typecheck.report.answers import Answer
from typecheck.report.summary import Summary

__all__ = ["machine"]


def machine(summary: Summary, answers: Sequence[Answer]) -> str:
    """The text, with a newline at its end. Counts are ``hits`` and ``of``; shares are left to the reader."""
    table = {
        "answers": [asdict(each) for each in answers],
        "aims_met": {f"{aim.design} {aim.label}": aim.met for aim in summary.aims},
        **asdict(summary),
    }
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"
