"""``python -m typecheck.migration``: migrate copies of released packages and write what came of it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from platformdirs import user_cache_path

from typecheck.migration.measure import MissingError, faults, measure, sources
from typecheck.migration.page import render

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Fetch, migrate, check, write; 0 when all is as it must be, 1 when something is not, 2 without a package."""
    root = Path(__file__).resolve().parents[2]
    cache = user_cache_path("genericbuilders")
    parser = argparse.ArgumentParser(prog="python -m typecheck.migration", description=__doc__)
    parser.add_argument("--cache", type=Path, default=cache / "out-of-tree", help="where packages are kept")
    parser.add_argument("--work", type=Path, default=cache / "migration", help="for copies and the checkers' caches")
    parser.add_argument("--output", type=Path, default=root / "docs" / "migration-results.md")
    options = parser.parse_args(arguments)
    try:
        found = sources(options.cache)
    except MissingError as error:
        _say(str(error))
        return 2
    results = measure(found, options.work, _say)
    partial = options.output.with_suffix(".partial")
    partial.write_text(render(results, os.cpu_count() or 1), encoding="utf-8")
    partial.replace(options.output)
    wrong = [line for each in results for line in faults(each)]
    for line in wrong:
        _say(line)
    return 1 if wrong else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - progress of a run of many minutes


if __name__ == "__main__":
    sys.exit(main())
