"""The figures, by arithmetic alone, from a corpus and the results on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from typecheck.corpus import Corpus, Design, Fault
from typecheck.explain import MYPY, PYRIGHT
from typecheck.verdict import Result, Stray

__all__ = [
    "AIM",
    "Alarms",
    "Comparison",
    "Count",
    "FamilyCatches",
    "Grid",
    "Listed",
    "Pair",
    "best_pairs",
    "by_label",
    "catches",
    "common_faults",
    "compare",
    "false_alarms",
    "listed",
    "pair_up",
    "stray_cases",
]

AIM: Final = 95
"""Per cent of the faults that a type could express: what mypy and pyright at their strictest should each catch."""


@dataclass(frozen=True)
class Count:
    """So many of so many."""

    hits: int
    of: int

    @property
    def per_cent(self) -> float:
        """One digit after the point, rounded down: what is not reached is not shown as reached. 0 of 0 is 0."""
        return self.hits * 1000 // self.of / 10 if self.of else 0.0


Grid = Mapping[str, Mapping[Design, Count]]
"""By checker-level and design."""


@dataclass(frozen=True)
class FamilyCatches:
    """One family's faults: how many there are, and how many of those that can be made in a design were caught."""

    name: str
    title: str
    faults: int
    grid: Grid


@dataclass(frozen=True)
class Pair:
    """Two checker-levels on the cases of one design: each case's key is in one of the four."""

    both: tuple[str, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    neither: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Two designs under one checker-level, over faults that both have: who catches what the other misses."""

    label: str
    design: Design
    other: Design
    gained: tuple[str, ...]
    lost: tuple[str, ...]
    both: int
    neither: int

    @property
    def faults(self) -> int:
        """All of them."""
        return len(self.gained) + len(self.lost) + self.both + self.neither


@dataclass(frozen=True)
class Listed:
    """One error at one place, with the checker-levels that report it."""

    place: str
    code: str
    labels: tuple[str, ...]


def common_faults(faults: Iterable[Fault]) -> list[Fault]:
    """The expressible ones that can be made in every design: on these the designs are compared on equal terms."""
    return [fault for fault in faults if fault.expressible and all(design in fault.cases for design in Design)]


def catches(faults: Iterable[Fault], results: Iterable[Result]) -> Grid:
    """How many were caught, of those that can be made in the design."""
    wanted = list(faults)
    return {
        result.label: {
            design: Count(
                sum(_caught(result, fault, design) for fault in wanted),
                sum(design in fault.cases for fault in wanted),
            )
            for design in Design
        }
        for result in results
    }


def pair_up(faults: Iterable[Fault], first: Result, second: Result, design: Design) -> Pair:
    """Two results side by side."""
    found: dict[tuple[bool, bool], list[str]] = {}
    for fault in faults:
        if design in fault.cases:
            key = _caught(first, fault, design), _caught(second, fault, design)
            found.setdefault(key, []).append(fault.key)
    return Pair(*(tuple(found.get(key, [])) for key in ((True, True), (True, False), (False, True), (False, False))))


def compare(faults: Iterable[Fault], result: Result, design: Design, other: Design) -> Comparison:
    """Two designs side by side."""
    found: dict[tuple[bool, bool], list[str]] = {}
    for fault in faults:
        if design in fault.cases and other in fault.cases:
            key = _caught(result, fault, design), _caught(result, fault, other)
            found.setdefault(key, []).append(fault.key)
    gained, lost = tuple(found.get((True, False), [])), tuple(found.get((False, True), []))
    both, neither = len(found.get((True, True), [])), len(found.get((False, False), []))
    return Comparison(result.label, design, other, gained, lost, both, neither)


def best_pairs(faults: Iterable[Fault], results: Sequence[Result], design: Design) -> list[tuple[str, str, Count]]:
    """What two checkers catch together, most first; two levels of one checker are no pair."""
    wanted = [fault for fault in faults if design in fault.cases]
    found = [
        (
            first.label,
            second.label,
            Count(
                sum(_caught(first, fault, design) or _caught(second, fault, design) for fault in wanted), len(wanted)
            ),
        )
        for first, second in combinations(results, 2)
        if first.checker != second.checker
    ]
    return sorted(found, key=lambda each: (-each[2].hits, each[0], each[1]))


@dataclass(frozen=True)
class Alarms:
    """Right files in which something is reported.

    Attributes:
        programs: of the clean programs' files; those that designs share count for each.
        variants: of the variants in their design's own idiom.
        unchanged: of the variants that are code of the one-parameter base, which the design asks to change.
    """

    programs: Grid
    variants: Grid
    unchanged: Grid

    def of(self, label: str, design: Design) -> int:
        """The false ones: in programs and in variants of the design's own idiom."""
        return self.programs[label][design].hits + self.variants[label][design].hits


def false_alarms(corpus: Corpus, results: Iterable[Result]) -> Alarms:
    """Count the files."""
    programs = {design: {corpus.short(path) for path in paths} for design, paths in corpus.programs.items()}
    own, unchanged = (
        {
            design: {
                corpus.short(each.path)
                for each in corpus.variants
                if each.design is design and bool(each.unchanged) is changes
            }
            for design in Design
        }
        for changes in (False, True)
    )
    every = list(results)
    return Alarms(_with_error(programs, every), _with_error(own, every), _with_error(unchanged, every))


def stray_cases(corpus: Corpus, results: Iterable[Result]) -> Grid:
    """Cases that are missed but have an error elsewhere in the file; of those that are missed."""
    grid: dict[str, dict[Design, Count]] = {}
    for result in results:
        seen = {_file(stray) for stray in result.strays}
        row: dict[Design, Count] = {}
        for design in Design:
            missed = [
                corpus.short(fault.cases[design].path)
                for fault in corpus.faults
                if design in fault.cases and not _caught(result, fault, design)
            ]
            row[design] = Count(sum(each in seen for each in missed), len(missed))
        grid[result.label] = row
    return grid


def listed(results: Iterable[Result], kind: str) -> list[Listed]:
    """Each error that is a false alarm (``kind`` is ``alarms``) or a stray one (``strays``), with who reports it."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for result in results:
        for stray in result.alarms if kind == "alarms" else result.strays:
            found.setdefault((stray.place, stray.code), {})[result.label] = None
    return [Listed(place, code, tuple(labels)) for (place, code), labels in sorted(found.items(), key=_order)]


def by_label(results: Iterable[Result]) -> tuple[Result, Result]:
    """mypy's and pyright's at their strictest.

    Raises:
        LookupError: one is not there.
    """
    known = {result.label: result for result in results}
    missing = [label for label in (MYPY, PYRIGHT) if label not in known]
    if missing:
        raise LookupError(f"no result of {' and '.join(missing)}; there are {', '.join(known)}")
    return known[MYPY], known[PYRIGHT]


def _caught(result: Result, fault: Fault, design: Design) -> bool:
    return design in fault.cases and result.findings[fault.key][design].caught


def _with_error(files: Mapping[Design, set[str]], results: Iterable[Result]) -> Grid:
    grid: dict[str, dict[Design, Count]] = {}
    for result in results:
        seen = {_file(stray) for stray in result.alarms}
        grid[result.label] = {design: Count(len(files[design] & seen), len(files[design])) for design in Design}
    return grid


def _file(stray: Stray) -> str:
    return stray.place.rpartition(":")[0]


def _order(item: tuple[tuple[str, str], object]) -> tuple[str, int, str]:
    (place, code), _ = item
    path, _, line = place.rpartition(":")
    return path, int(line), code
