"""The figures of the designs under other projects' builders, as far as the report tells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from genericbuilders.checkers.checker import OutputError
from genericbuilders.checkers.fields import Record, read_json

__all__ = ["Outside", "OutsideError", "OutsideRow", "read_outside"]


class OutsideError(ValueError):
    """The file cannot be read; the message says why."""


@dataclass(frozen=True)
class OutsideRow:
    """One design under one checker, on one side: the project's own builders, or those of others.

    Attributes:
        design: its name there.
        checker: the checker's.
        side: ``in_tree`` or ``out_of_tree``.
        new: errors that the widened base does not give.
        gone: errors that only the widened base gives.
        builders_broken: builders with a new error.
        projects_broken: packages with one.
        asked: builders that were asked about.
        says_narrow: those that say a spec narrower than the base's.
        sees_its_spec: those of them whose attribute has just that type.
        class_slot_refuses: builders that a variable ``type[AttentionMetadataBuilder]`` does not hold.
    """

    design: str
    checker: str
    side: str
    new: int
    gone: int
    builders_broken: int
    projects_broken: int
    asked: int
    says_narrow: int
    sees_its_spec: int
    class_slot_refuses: int


@dataclass(frozen=True)
class Outside:
    """What was measured there: the packages with their versions, and a row for each design, checker and side."""

    packages: Mapping[str, str]
    rows: tuple[OutsideRow, ...]


def read_outside(path: Path) -> Outside:
    """Read what ``python -m typecheck.out_of_tree`` wrote.

    Raises:
        OutsideError: it is missing or malformed.
    """
    try:
        table = read_json(path.read_text(encoding="utf-8"), path.name)
        packages = table.record("packages")
        return Outside(
            {str(name): packages.record(str(name)).text("version") for name in packages.values},
            tuple(row for design in table.records("designs") for row in _rows(design)),
        )
    except (OSError, OutputError) as error:
        raise OutsideError(f"{path}: {error}; `python -m typecheck.out_of_tree` writes it") from None


def _rows(design: Record) -> list[OutsideRow]:
    checkers = design.record("checkers")
    return [
        _row(design.text("design"), str(name), side, checkers.record(str(name)))
        for name in checkers.values
        for side in ("in_tree", "out_of_tree")
    ]


def _row(design: str, checker: str, side: str, figures: Record) -> OutsideRow:
    summary, builders = figures.record("summary").record(side), figures.record("builders").record(side)
    return OutsideRow(
        design,
        checker,
        side,
        summary.whole("new"),
        summary.whole("gone"),
        summary.whole("builders_broken"),
        summary.whole("projects_broken"),
        builders.whole("asked"),
        builders.whole("says_narrow"),
        builders.whole("sees_its_spec"),
        builders.whole("class_slot_refuses"),
    )
