"""Runs every checker at every level over the whole corpus: one process for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from genericbuilders.checkers import CHECKERS, Checker, Level, Request, Run, Status, check_all
from typecheck.corpus import Corpus
from typecheck.verdict import Result, judge

__all__ = ["FOLDER", "RESULTS", "Outcome", "UnknownNameError", "labels", "measure", "pairs", "request_for"]

FOLDER: Final = Path(__file__).absolute().parent
RESULTS: Final = FOLDER / "results"


class UnknownNameError(LookupError):
    """There is no checker, and no level, of that name; the message says which there are."""


@dataclass(frozen=True)
class Outcome:
    """What a run of the study gave: results, and the runs that gave none."""

    results: tuple[Result, ...]
    failed: tuple[Run, ...]


def pairs(only: Iterable[str] = ()) -> list[tuple[Checker, Level]]:
    """Every checker with every level, or those whose label or checker name is in ``only``.

    Raises:
        UnknownNameError: a name in ``only`` is unknown.
    """
    every = [(checker, level) for checker in CHECKERS for level in checker.levels]
    wanted = set(only)
    if not wanted:
        return every
    known = {name for checker, level in every for name in (checker.name, checker.label(level))}
    if unknown := sorted(wanted - known):
        raise UnknownNameError(
            f"no checker or level is called {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        )
    return [pair for pair in every if wanted & {pair[0].name, pair[0].label(pair[1])}]


def labels() -> list[str]:
    """The label of every checker with every level."""
    return [checker.label(level) for checker, level in pairs()]


def request_for(files: Iterable[Path], *, cache_dir: Path | None = None, time_limit: float = 600.0) -> Request:
    """A request over files of the study, in the surroundings that the project's own checks have."""
    root = FOLDER.parent
    return Request(
        files=tuple(files),
        root=root,
        search_paths=(root / "adapters",),
        stub_paths=(root / "typings",),
        cache_dir=cache_dir or root / ".mypy_cache" / "study",
        time_limit=time_limit,
    )


def measure(
    corpus: Corpus,
    wanted: Iterable[tuple[Checker, Level]],
    jobs: int = 2,
    finished: Callable[[Run], None] | None = None,
) -> Outcome:
    """Check the corpus.

    Args:
        corpus: what to check.
        wanted: checkers, each with one of its levels.
        jobs: processes at a time.
        finished: told about each run when it is over, in some thread.
    """
    runs = check_all(wanted, request_for(corpus.files), jobs, finished)
    good = [run for run in runs if run.status == Status.OK]
    return Outcome(tuple(judge(corpus, run) for run in good), tuple(run for run in runs if run.status != Status.OK))
