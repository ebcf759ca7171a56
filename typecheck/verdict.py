"""From what a checker reported to what it caught, missed and wrongly refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from genericbuilders.checkers import Diagnostic, Run
from typecheck.corpus import Case, Corpus, Design

__all__ = ["STYLE", "Finding", "Result", "Stray", "judge"]

STYLE: Final[frozenset[str]] = frozenset(
    {
        "reportImplicitOverride",
        "reportImplicitStringConcatenation",
        "reportUnannotatedClassAttribute",
        "reportUnusedCallResult",
        "reportUnusedImport",
        "reportUnusedParameter",
        "reportUnusedVariable",
    }
)
"""Rules about how code is written, not whether its types fit: none of them catches a mistake of this corpus."""


@dataclass(frozen=True)
class Stray:
    """An error at another place than the mistake, or in a right program. ``place`` is ``path:line`` in the study."""

    place: str
    code: str


@dataclass(frozen=True)
class Finding:
    """What one run said about one case: the codes of the errors on its marked lines."""

    codes: tuple[str, ...] = ()

    @property
    def caught(self) -> bool:
        """Whether there is one."""
        return bool(self.codes)


@dataclass(frozen=True)
class Result:
    """What one checker at one level said about the corpus.

    Attributes:
        checker: its name.
        level: the level's name.
        version: the checker's.
        findings: by `Fault.key` and design.
        strays: errors in cases, but not where the mistake is.
        alarms: errors in the clean programs and in the variants.
    """

    checker: str
    level: str
    version: str
    findings: Mapping[str, Mapping[Design, Finding]]
    strays: tuple[Stray, ...]
    alarms: tuple[Stray, ...]

    @property
    def label(self) -> str:
        """Such as ``mypy-strict``."""
        return f"{self.checker}-{self.level}"


def judge(corpus: Corpus, run: Run) -> Result:
    """Hold a run that ended well against the marks.

    Raises:
        ValueError: the run did not end well.
    """
    if run.status != "ok" or run.version is None:
        raise ValueError(f"{run.label} has no result: {run.status}: {run.reason}")
    by_path: dict[Path, list[Diagnostic]] = {}
    for each in run.errors:
        by_path.setdefault(each.path, []).append(each)
    findings: dict[str, dict[Design, Finding]] = {}
    strays: list[Stray] = []
    for fault in corpus.faults:
        findings[fault.key] = {}
        for design, case in fault.cases.items():
            errors = by_path.pop(case.path, [])
            findings[fault.key][design] = _finding(case, errors)
            strays += [_stray(corpus, each) for each in errors if each.line not in case.marks]
    alarms = [_stray(corpus, each) for errors in by_path.values() for each in errors]
    return Result(run.checker, run.level, run.version, findings, _sorted(strays), _sorted(alarms))


def _finding(case: Case, errors: list[Diagnostic]) -> Finding:
    codes = {each.code or "error" for each in errors if each.line in case.marks and each.code not in STYLE}
    return Finding(tuple(sorted(codes)))


def _stray(corpus: Corpus, diagnostic: Diagnostic) -> Stray:
    return Stray(f"{corpus.short(diagnostic.path)}:{diagnostic.line}", diagnostic.code or "error")


def _sorted(strays: list[Stray]) -> tuple[Stray, ...]:
    def order(stray: Stray) -> tuple[str, int, str]:
        path, _, line = stray.place.rpartition(":")
        return path, int(line), stray.code

    return tuple(sorted(dict.fromkeys(strays), key=order))
