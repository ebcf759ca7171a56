"""The report on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from typecheck.report.answers import Answer
from typecheck.report.layout import Section, Table, Tone

__all__ = ["show"]

NAME_WIDTH = 30
STYLES = {Tone.PLAIN: "", Tone.GOOD: "green", Tone.BAD: "red"}


def show(console: Console, answers: Iterable[Answer], sections: Iterable[Section]) -> None:
    """Print all of it; tables without a row are left out."""
    for each in answers:
        console.print(Text(each.question, style="bold"))
        console.print(Text(each.verdict))
        for line in each.lines:
            console.print(Padding(Text(f"* {line}"), (0, 0, 0, 2)))
        console.print()
    for section in sections:
        console.rule(Text(section.title, style="bold"))
        for paragraph in section.paragraphs:
            console.print(Text(paragraph))
        for table in section.tables:
            if table.rows:
                console.print(_rich(table))
        console.print()


def _rich(table: Table) -> RichTable:
    shown = RichTable(
        title=Text(table.title, style="bold"), title_justify="left", show_header=any(table.columns), pad_edge=False
    )
    for index, column in enumerate(table.columns):
        if table.words or index == 0:
            shown.add_column(Text(column), overflow="fold", min_width=NAME_WIDTH if index == 0 else None)
        else:
            shown.add_column(Text(column), justify="right", overflow="fold")
    for row in table.rows:
        shown.add_row(*(Text(cell.text, style=STYLES[cell.tone]) for cell in row))
    return shown
