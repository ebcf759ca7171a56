"""The commands, put together."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from genericbuilders.cli.backends import backends
from genericbuilders.cli.compare import compare
from genericbuilders.cli.generate import generate
from genericbuilders.cli.migrate import migrate

__all__ = ["app"]

# A traceback is for faults of the program, and then a plain one is the most useful.
app: typer.Typer = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
app.command()(generate)
app.command()(backends)
app.command()(compare)
app.command()(migrate)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"genericbuilders {version('genericbuilders')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Run language models on typed attention back ends."""
