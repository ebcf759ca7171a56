"""Why mypy and pyright differ: written by hand, held against the results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from typecheck import toml
from typecheck.verdict import Result

__all__ = ["MYPY", "PYRIGHT", "Cause", "ExplanationError", "check_explanations", "differing", "read_causes"]

MYPY = "mypy-strict"
PYRIGHT = "pyright-strict"


class ExplanationError(ValueError):
    """The explanations cannot be read; the message says why."""


@dataclass(frozen=True)
class Cause:
    """One reason for which one of the two reports what the other does not.

    Attributes:
        title: in a few words.
        only: the one that reports it: ``mypy`` or ``pyright``.
        why: a paragraph.
        sources: addresses of the issue, the documentation or the section of the typing specification.
        cases: ``family/name/design`` of each.
    """

    title: str
    only: str
    why: str
    sources: tuple[str, ...]
    cases: tuple[str, ...]


def read_causes(path: Path) -> list[Cause]:
    """The explanations in ``path``.

    Raises:
        ExplanationError: they are missing or malformed.
    """
    try:
        return [_cause(each) for each in toml.tables(toml.load(path), "cause")]
    except (OSError, ValueError) as error:
        raise ExplanationError(f"{path}: {error}") from None


def differing(results: Iterable[Result]) -> dict[str, str]:
    """``family/name/design`` of each case on which mypy and pyright at their strictest differ, with who reports it."""
    by_label = {result.label: result for result in results}
    if MYPY not in by_label or PYRIGHT not in by_label:
        return {}
    found: dict[str, str] = {}
    for key, row in by_label[MYPY].findings.items():
        for design, finding in row.items():
            other = by_label[PYRIGHT].findings[key][design]
            if finding.caught != other.caught:
                found[f"{key}/{design}"] = "mypy" if finding.caught else "pyright"
    return found


def check_explanations(path: Path, results: Sequence[Result]) -> list[str]:
    """What is not explained, explained twice, or explained and not so; one line each.

    Raises:
        ExplanationError: the explanations are missing or malformed.
    """
    actual = differing(results)
    told: dict[str, str] = {}
    lines: list[str] = []
    for cause in read_causes(path):
        for case in cause.cases:
            if case in told:
                lines.append(f"{path.name}: {case} is explained twice")
            told[case] = cause.only
    for case in sorted(actual.keys() | told.keys()):
        if actual.get(case) != told.get(case):
            does = actual.get(case, "both or neither")
            if case in told:
                lines.append(f"{path.name}: {case}: says that only {told[case]} reports it; it is {does}")
            else:
                lines.append(f"{path.name}: {case}: only {does} reports it, and no cause explains that")
    return lines


def _cause(told: toml.Table) -> Cause:
    only = toml.text(told, "only")
    if only not in ("mypy", "pyright"):
        raise ValueError(f"only = {only!r} must be 'mypy' or 'pyright'")
    why = " ".join(toml.text(told, "why").split())
    return Cause(toml.text(told, "title"), only, why, toml.texts(told, "sources"), toml.texts(told, "cases"))
