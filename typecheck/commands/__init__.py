"""``run``, ``validate``, ``report`` and ``measure``; each in a module of its own, loaded when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(
    help="The study: four designs, a corpus of faults, six checkers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Only = Annotated[list[str] | None, typer.Option("--only", help="A checker, or a checker's level such as mypy-strict.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes at a time.")]


@app.command()
def run(only: Only = None, jobs: Jobs = 2) -> None:
    """Run all checkers and rewrite results/."""
    from typecheck.commands.checking import run_and_write

    raise typer.Exit(run_and_write(only or [], jobs))


@app.command()
def validate(only: Only = None, jobs: Jobs = 2) -> None:
    """Run all checkers and fail where a result differs from results/, in either direction."""
    from typecheck.commands.checking import run_and_compare

    raise typer.Exit(run_and_compare(only or [], jobs))


@app.command()
def report(
    json: Annotated[bool, typer.Option("--json", help="Write one JSON object instead of tables.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page that stands alone, and print its path.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the documentation's page, and print its path.")] = None,
) -> None:
    """Tell what the committed results say."""
    from typecheck.commands.reporting import tell

    raise typer.Exit(tell(json, html, markdown))


@app.command()
def measure(rounds: Annotated[int, typer.Option(min=1, help="Runs of each, for medians.")] = 5) -> None:
    """Measure what the designs cost, and rewrite results/costs.json."""
    from typecheck.commands.costing import measure_and_write

    raise typer.Exit(measure_and_write(rounds))
