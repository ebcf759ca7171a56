"""The command line: ``genericbuilders generate`` and ``genericbuilders backends``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line. It needs the extra ``cli``; without it, say how to get it."""
    try:
        from genericbuilders.cli.app import app

        app(prog_name="genericbuilders")
    except KeyboardInterrupt:
        # Before or after a command has its own way of stopping.
        sys.exit(130)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("typer", "rich"):
            raise
        sys.stderr.write(
            f"error: the command line needs {package}, which is not installed; "
            "run: pip install 'genericbuilders[cli]'\n"
        )
        sys.exit(2)
