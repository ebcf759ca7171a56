"""Time and memory of the checkers over each design's own files, cold: nothing is known from an earlier run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from genericbuilders.checkers import Checker, Level, Run, Status, check
from typecheck.corpus import Design
from typecheck.costs.measured import Checking, compared
from typecheck.study import request_for

__all__ = ["Measured", "measure_checking"]

MEBIBYTE = 2**20
Check = Callable[[Checker, Level, Iterable[Path]], Run]


@dataclass(frozen=True)
class Measured:
    """What was measured, and the reasons of what was not."""

    checking: tuple[Checking, ...]
    missing: Mapping[str, str]


def measure_checking(
    files: Mapping[Design, Iterable[Path]],
    wanted: Iterable[tuple[Checker, Level]],
    rounds: int,
    say: Callable[[str], None],
    run: Check | None = None,
) -> Measured:
    """Run every checker ``rounds`` times over each design; the designs take turns, and each round begins with another.

    Args:
        files: of each design.
        wanted: checkers, each with one of its levels.
        rounds: runs of each.
        say: told how far it is.
        run: runs one; by default the checker itself, with an empty cache.
    """
    done: list[Checking] = []
    missing: dict[str, str] = {}
    for checker, level in wanted:
        label = checker.label(level)
        runs = _rounds(files, checker, level, rounds, run or _cold)
        bad = next((each for each in runs if each[1].status is not Status.OK), None)
        if bad is not None:
            missing[label] = f"{bad[1].status}: {(bad[1].reason or '').splitlines()[0]}"
            say(f"{label}: {missing[label]}")
            continue
        seconds = {design: [each.seconds for which, each in runs if which is design] for design in files}
        memory = {design: [each.peak_bytes / MEBIBYTE for which, each in runs if which is design] for design in files}
        version = runs[0][1].version or ""
        done.append(Checking(checker.name, level.name, version, compared(seconds), compared(memory)))
        say(f"{label}: {', '.join(f'{design} {cost.median:.2f} s' for design, cost in done[-1].seconds.items())}")
    return Measured(tuple(done), missing)


def _rounds(
    files: Mapping[Design, Iterable[Path]], checker: Checker, level: Level, rounds: int, run: Check
) -> list[tuple[Design, Run]]:
    """All runs in order; cut short by the first that did not end well."""
    designs = list(files)
    runs: list[tuple[Design, Run]] = []
    for turn in range(rounds):
        first = turn % len(designs)
        for design in designs[first:] + designs[:first]:
            runs.append((design, run(checker, level, files[design])))
            if runs[-1][1].status is not Status.OK:
                return runs
    return runs


def _cold(checker: Checker, level: Level, files: Iterable[Path]) -> Run:
    with TemporaryDirectory(prefix="genericbuilders-cold-") as cache:
        return check(checker, level, request_for(files, cache_dir=Path(cache)))
