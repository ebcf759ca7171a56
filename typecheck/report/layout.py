"""The report as sections with tables, whatever they are shown on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Cell", "Section", "Table", "Tone", "cell", "rows"]


class Tone(StrEnum):
    """How a cell is meant. It is always said in words as well."""

    PLAIN = ""
    GOOD = "good"
    BAD = "bad"


@dataclass(frozen=True)
class Cell:
    """One cell; ``hint`` is shown where there is room for it."""

    text: str
    tone: Tone = Tone.PLAIN
    hint: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under headings. The first column names the row; the others hold figures unless ``words`` is set."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title}: a row has {len(row)} cells, there are {len(self.columns)} columns")


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and tables below them."""

    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = field(default=())


def cell(value: object, tone: Tone = Tone.PLAIN, hint: str = "") -> Cell:
    """A cell with the text of ``value``."""
    return Cell(str(value), tone, hint)


def rows(values: Iterable[Sequence[object]]) -> tuple[tuple[Cell, ...], ...]:
    """Rows of plain cells; what is a cell already stays as it is."""
    return tuple(tuple(each if isinstance(each, Cell) else cell(each) for each in row) for row in values)
