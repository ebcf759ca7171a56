"""The heat map: every fault under every checker-level and design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from typecheck.corpus import Corpus, Design, Fault
from typecheck.verdict import Result

__all__ = ["Block", "HeatCell", "HeatMap", "Row", "heat_map"]


@dataclass(frozen=True)
class HeatCell:
    """``kind`` is ``caught``, ``missed`` or ``absent``; ``hint`` says which run, which design and what was reported."""

    kind: str
    hint: str


@dataclass(frozen=True)
class Row:
    """One fault; ``cells`` are by checker-level, and by design within each."""

    name: str
    mistake: str
    expressible: bool
    cells: tuple[HeatCell, ...]


@dataclass(frozen=True)
class Block:
    """One family."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class HeatMap:
    """All of it."""

    labels: tuple[str, ...]
    designs: tuple[str, ...]
    blocks: tuple[Block, ...]


def heat_map(corpus: Corpus, results: Sequence[Result]) -> HeatMap:
    """Rows in the order of the corpus, columns in that of the results."""
    return HeatMap(
        tuple(result.label for result in results),
        tuple(str(design) for design in Design),
        tuple(
            Block(family.title, tuple(_row(fault, results) for fault in family.faults)) for family in corpus.families
        ),
    )


def _row(fault: Fault, results: Sequence[Result]) -> Row:
    cells = tuple(_cell(fault, result, design) for result in results for design in Design)
    return Row(fault.name, fault.mistake, fault.expressible, cells)


def _cell(fault: Fault, result: Result, design: Design) -> HeatCell:
    where = f"{result.label}, {design}: "
    if design not in fault.cases:
        return HeatCell("absent", where + f"cannot be made: {fault.absent[design]}")
    codes = result.findings[fault.key][design].codes
    return HeatCell("caught", where + ", ".join(codes)) if codes else HeatCell("missed", where + "missed")
