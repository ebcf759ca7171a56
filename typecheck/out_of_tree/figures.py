"""Turns what checkers found in a tree into figures."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from typecheck.out_of_tree.checking import Finding
from typecheck.out_of_tree.delta import Change, compare, tally
from typecheck.out_of_tree.inventory import WIDE, Inventory
from typecheck.out_of_tree.packages import VLLM
from typecheck.out_of_tree.places import KINDS, Places
from typecheck.out_of_tree.probe import PROBE_FILE, QUESTIONS, ProbeModule

__all__ = ["SIDES", "Checked", "Json", "answers", "call_sites", "changes", "side_of", "sorted_counts"]

SIDES = ("in_tree", "out_of_tree")
Json = dict[str, object]


@dataclass(frozen=True)
class Checked:
    """What one checker found in one tree, and the tree's places."""

    findings: tuple[Finding, ...]
    places: Places

    @property
    def errors(self) -> list[Finding]:
        """The errors outside the module of questions."""
        return [each for each in self.findings if each.kind == "error" and each.path != PROBE_FILE]


def side_of(package: str) -> str:
    """Which of `SIDES` an import package is on."""
    return SIDES[0] if package == VLLM.module else SIDES[1]


def sorted_counts(counter: Mapping[str, int]) -> Json:
    """The counts, largest first."""
    ordered = sorted((-count, key) for key, count in counter.items())
    return {key: -count for count, key in ordered}


def changes(before: Checked, after: Checked) -> Json:
    """The errors that ``after`` has and ``before`` has not and the other way round: summed, counted, listed."""
    delta = compare(before.errors, after.errors, before.places, after.places)
    return {
        "summary": {side: _summary(side, delta.new, delta.gone) for side in SIDES},
        "errors": dict(sorted(Counter(each.path.partition("/")[0] for each in after.errors).items())),
        "new": {"counts": tally(delta.new), "errors": [_audit(each) for each in delta.new]},
        "gone": {"counts": tally(delta.gone), "errors": [_audit(each) for each in delta.gone]},
        "reworded": delta.reworded,
    }


def _summary(side: str, new: Sequence[Change], gone: Sequence[Change]) -> Json:
    here = [each for each in new if side_of(each.package) == side]
    kinds = Counter(each.place.kind for each in here)
    return {
        "new": len(here),
        "gone": sum(side_of(each.package) == side for each in gone),
        "builders_broken": len({each.place.builder for each in here if each.place.builder}),
        "files_broken": len({each.finding.path for each in here}),
        "projects_broken": len({each.package for each in here}),
        "new_at": {kind: kinds[kind] for kind in KINDS if kinds[kind]},
    }


def _audit(change: Change) -> Json:
    finding = change.finding
    return {
        "at": f"{finding.path}:{finding.line}",
        "in": change.place.scope,
        "kind": change.place.kind,
        "code": finding.code,
        "message": finding.message,
    }


def answers(probe: ProbeModule, inventory: Inventory, findings: Sequence[Finding]) -> Json:
    """What the module of questions says of each builder, summed by side; the attribute's types are counted."""
    by_line: dict[int, list[Finding]] = defaultdict(list)
    for each in findings:
        if each.path == PROBE_FILE:
            by_line[each.line].append(each)
    counts = {side: Counter[str]() for side in SIDES}
    types = {side: Counter[str]() for side in SIDES}
    for builder, first in zip(probe.builders, probe.first_lines, strict=True):
        side = side_of(builder.package)
        counts[side]["asked"] += 1
        for offset, question in enumerate(QUESTIONS):
            here = by_line[first + offset]
            if question != "attribute":
                refused = any(each.kind == "error" and _is_about_the_type(each.message, question) for each in here)
                counts[side][f"{question}_refuses"] += refused
                continue
            seen = next((_short(each.message) for each in here if each.kind == "reveal"), "no answer")
            types[side][seen] += 1
            if (said := inventory.spec_of(builder)) not in WIDE:
                counts[side]["says_narrow"] += 1
                counts[side][_verdict(said, seen)] += 1
    keys = [
        "asked",
        "says_narrow",
        "sees_its_spec",
        "sees_wider",
        "sees_other",
        *(f"{each}_refuses" for each in QUESTIONS[1:]),
    ]
    return {
        side: {**{key: counts[side][key] for key in keys}, "attribute": sorted_counts(types[side])} for side in SIDES
    }


def _verdict(said: str, seen: str) -> str:
    if seen == said:
        return "sees_its_spec"
    # The specs that have subclasses among those that builders say.
    return "sees_wider" if seen in ("KVCacheSpec", "AttentionSpec", "MLAAttentionSpec") else "sees_other"


def _is_about_the_type(message: str, question: str) -> bool:
    if question in ("class_slot", "instance_slot"):
        # An abstract class is refused for that, whatever its parameters are.
        return "AttentionMetadataBuilder" in message and "concrete class" not in message
    return 'has incompatible type "KVCacheSpec"' in message or 'Argument of type "KVCacheSpec"' in message


def _short(text: str) -> str:
    """A type without module paths, ``Unknown`` as ``Any``, and without the marks of inferred variables."""
    text = re.sub(r"\b(?:\w+\.)+(\w)", r"\1", text).replace("Unknown", "Any").rstrip("?")
    return re.sub(r"@\w+|`-?\d+", "", text)


def call_sites(findings: Sequence[Finding], sites: Mapping[tuple[str, int], Sequence[str]]) -> Json:
    """The types of the wrapped calls, by side and method.

    Args:
        findings: of one checker, in order.
        sites: the methods called on each line, in the order of the columns.
    """
    rows = {side: defaultdict[str, Counter[str]](Counter) for side in SIDES}
    left = {place: list(methods) for place, methods in sites.items()}
    for each in findings:
        waiting = left.get((each.path, each.line))
        if each.kind == "reveal" and waiting:
            rows[side_of(each.path.partition("/")[0])][waiting.pop(0)][_short(each.message)] += 1
    for (path, _), methods in left.items():
        for method in methods:
            rows[side_of(path.partition("/")[0])][method]["not analysed"] += 1
    return {
        side: {method: sorted_counts(types) for method, types in sorted(methods.items())}
        for side, methods in rows.items()
    }
