"""Which errors one tree has and another has not, and at what kind of place they are."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from typecheck.out_of_tree.checking import Finding
from typecheck.out_of_tree.designs import BASE_CLASS

__all__ = ["KINDS", "Change", "Delta", "Places", "compare"]

# The base and its helpers; a builder class; a back end naming its builder; whatever holds or calls builders.
KINDS = ("base", "builder", "get_builder_cls", "call site")
_BASE_FILE = "vllm/v1/attention/backend.py"


@dataclass(frozen=True)
class Place:
    """Where a line is: its scope's qualified name and one of `KINDS`."""

    scope: str
    kind: str


class Places:
    """Finds the places of lines in one tree."""

    def __init__(self, root: Path, builder_names: Mapping[str, frozenset[str]]) -> None:
        self._root = root
        self._builder_names = builder_names
        self._scopes: dict[str, list[tuple[int, int, tuple[str, ...]]]] = {}

    def of(self, path: str, line: int) -> Place:
        """The place of a line."""
        if path not in self._scopes:
            syntax = ast.parse((self._root / path).read_text(encoding="utf-8", errors="replace"))
            self._scopes[path] = list(_scopes(syntax, ()))
        inside = [names for first, last, names in self._scopes[path] if first <= line <= last]
        names = max(inside, key=len, default=())
        return Place(".".join(names) or "<module>", self._kind(path, names))

    def _kind(self, path: str, names: tuple[str, ...]) -> str:
        if path == _BASE_FILE:
            return "base"
        if "get_builder_cls" in names:
            return "get_builder_cls"
        builders = self._builder_names.get(path, frozenset[str]())
        return "builder" if builders.intersection(names) else "call site"


def _scopes(node: ast.AST, names: tuple[str, ...]) -> Iterable[tuple[int, int, tuple[str, ...]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = (*names, child.name)
            first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
            yield first, child.end_lineno or child.lineno, inner
            yield from _scopes(child, inner)
        else:
            yield from _scopes(child, names)


@dataclass(frozen=True)
class Change:
    """One error that is only on one side. ``about_spec``: its message names a spec, a builder or the hook."""

    package: str
    kind: str
    scope: str
    finding: Finding

    @property
    def about_spec(self) -> bool:
        """Whether the message is about what the designs differ in."""
        words = ("kv_cache_spec", "KVCacheSpec", "AttentionSpec", "MambaSpec", BASE_CLASS, "get_cudagraph_support")
        return any(word in self.finding.message for word in words)


@dataclass(frozen=True)
class Delta:
    """Errors of the second tree that the first has not (``new``), those of the first that are ``gone``.

    ``reworded`` counts pairs of the same rule on the same line whose text differs, as it does where a type's
    parameters are spelled out; they are on neither list.
    """

    new: tuple[Change, ...]
    gone: tuple[Change, ...]
    reworded: int


def compare(
    before: Sequence[Finding], after: Sequence[Finding], places_before: Places, places_after: Places
) -> Delta:
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
    changes: list[Change] = []
    for each in findings:
        place = places.of(each.path, each.line)
        changes.append(Change(each.path.partition("/")[0], place.kind, place.scope, each))
    return tuple(changes)


def tally(changes: Iterable[Change]) -> dict[str, dict[str, int]]:
    """How many by package and kind."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for change in changes:
        counted[change.package][change.kind] += 1
    return {package: {kind: kinds[kind] for kind in KINDS if kinds[kind]} for package, kinds in sorted(counted.items())}
