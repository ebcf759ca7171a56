"""The command line: ``genericbuilders generate``, ``genericbuilders backends``, ``genericbuilders compare``."""

from __future__ import annotations

import os
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
    except SystemExit as ending:
        if ending.code == 130:
            # All is said; taking torch down in good order would take longer than the second that is promised.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(130)
        raise
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("typer", "rich"):
            raise
        sys.stderr.write(
            f"error: the command line needs {package}, which is not installed; "
            "run: pip install 'genericbuilders[cli]'\n"
        )
        sys.exit(2)
