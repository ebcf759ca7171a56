"""What a checker says about one place in a file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = ["Diagnostic", "Severity"]


class Severity(StrEnum):
    """How bad a checker says that it is. Notes are information."""

    ERROR = "error"
    WARNING = "warning"
    INFORMATION = "information"


@dataclass(frozen=True)
class Diagnostic:
    """One report.

    Attributes:
        path: absolute, as the caller wrote it where the caller named the file.
        line: counted from 1; what concerns a whole file is on its first line.
        column: counted from 1.
        severity: as the checker gave it.
        code: the checker's name of the rule; empty where it gives none.
        message: one or more lines, without the code.
    """

    path: Path
    line: int
    column: int
    severity: Severity
    code: str
    message: str
