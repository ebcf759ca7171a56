"""Which errors one tree has and another has not, and at what kind of place they are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from typecheck.out_of_tree.checking import Finding
from typecheck.out_of_tree.places import KINDS, Place, Places

__all__ = ["Change", "Delta", "compare", "tally"]


@dataclass(frozen=True)
class Change:
    """One error that is only on one side, and where it is."""

    finding: Finding
    place: Place

    @property
    def package(self) -> str:
        """The import package that it is in."""
        return self.finding.path.partition("/")[0]


@dataclass(frozen=True)
class Delta:
    """Errors of the second tree that the first has not (``new``), those of the first that are ``gone``.

    ``reworded`` counts pairs of the same rule on the same line whose text differs, as it does where a type's
    parameters are spelled out; they are on neither list.
    """

    new: tuple[Change, ...]
    gone: tuple[Change, ...]
    reworded: int


def compare(before: Sequence[Finding], after: Sequence[Finding], places_before: Places, places_after: Places) -> Delta:
    """Pair the errors of two trees: by exact line, then by scope (lines may have moved), then by line and rule."""
    left = [each for each in before if each.kind == "error"]
    right = [each for each in after if each.kind == "error"]
    left, right, _ = _pair(left, right, lambda each, _: (each.path, each.line, each.code, each.message), None, None)

    def by_scope(each: Finding, places: Places | None) -> tuple[object, ...]:
        scope = places.of(each.path, each.line).scope if places else ""
        return each.path, scope, each.code, each.message

    left, right, _ = _pair(left, right, by_scope, places_before, places_after)
    left, right, reworded = _pair(left, right, lambda each, _: (each.path, each.line, each.code), None, None)
    return Delta(_changes(right, places_after), _changes(left, places_before), reworded)


def _pair(
    left: list[Finding],
    right: list[Finding],
    key: Callable[[Finding, Places | None], tuple[object, ...]],
    places_left: Places | None,
    places_right: Places | None,
) -> tuple[list[Finding], list[Finding], int]:
    waiting: dict[tuple[object, ...], list[Finding]] = defaultdict(list)
    for each in left:
        waiting[key(each, places_left)].append(each)
    unmatched: list[Finding] = []
    for each in right:
        mates = waiting.get(key(each, places_right))
        if mates:
            mates.pop(0)
        else:
            unmatched.append(each)
    rest = sorted(each for mates in waiting.values() for each in mates)
    return rest, unmatched, len(right) - len(unmatched)


def _changes(findings: Iterable[Finding], places: Places) -> tuple[Change, ...]:
    return tuple(Change(each, places.of(each.path, each.line)) for each in findings)


def tally(changes: Iterable[Change]) -> dict[str, dict[str, int]]:
    """How many by package and kind of place."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for change in changes:
        counted[change.package][change.place.kind] += 1
    return {package: {kind: kinds[kind] for kind in KINDS if kinds[kind]} for package, kinds in sorted(counted.items())}
