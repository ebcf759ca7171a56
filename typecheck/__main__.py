"""``python -m typecheck``."""

from __future__ import annotations

from typecheck.commands import app

__all__: list[str] = []

if __name__ == "__main__":
    app(prog_name="python -m typecheck")
