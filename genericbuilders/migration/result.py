"""What the codemod found and did: plain data that the engine makes and the command shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = ["ClassReport", "FileResult", "Finding", "Outcome", "Target"]


class Target(StrEnum):
    """What builders are rewritten to.

    ``GENERIC`` is this library's base with two type parameters; ``WIDENED`` is vLLM's own base as PR #50148 left it,
    with a class-level annotation in each subclass.
    """

    GENERIC = "generic"
    WIDENED = "widened"


class Outcome(StrEnum):
    """What became of one builder class."""

    MIGRATED = "migrated"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True)
class Finding:
    """One thing that is rewritten, or is left and why.

    Attributes:
        line: 1-based, in the file as it was given.
        column: 1-based.
        rule: a short name in kebab case, such as ``spec-argument``; documented in ``docs/migrate.md``.
        message: what changes; or, of what is left, why, and what to do.
        changes: whether the file changes because of it.
    """

    line: int
    column: int
    rule: str
    message: str
    changes: bool


@dataclass(frozen=True)
class ClassReport:
    """One builder class.

    Attributes:
        name: qualified within its module, ``outer.<locals>.Inner`` where a function makes it.
        line: 1-based line of its ``class`` statement, or of the call that makes it.
        spec: the specs that it takes, as written in the new code; ``None`` where they could not be told.
        evidence: what told so, such as ``hint of kv_cache_spec in __init__ (line 12)``; ``None`` likewise.
        findings: what changes within it, and what is left, in order of lines.
    """

    name: str
    line: int
    outcome: Outcome
    spec: str | None
    evidence: str | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class FileResult:
    """One file.

    Attributes:
        before: its text as it was given.
        after: its text as it would be; the same object where nothing changes.
        classes: its builder classes, in order of lines.
        findings: what changes, or is left, outside these classes: imports, back ends, layers.
    """

    path: Path
    before: str
    after: str
    classes: tuple[ClassReport, ...]
    findings: tuple[Finding, ...]

    @property
    def changed(self) -> bool:
        """Whether the file would be rewritten."""
        return self.after != self.before
