"""Which errors the checkers report in migrated classes that they did not report before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from typecheck.migration.copies import Migrated
from typecheck.out_of_tree.checking import LANES, Finding, Lane, find
from typecheck.out_of_tree.delta import Change, compare
from typecheck.out_of_tree.places import Places

__all__ = ["PROBE", "PROBE_FILE", "Checked", "UnresolvedError", "check_tree", "differences"]

PROBE_FILE = "probe_of_migration.py"
# Where an import is not found, all that comes from it is Any, and no checker finds anything to say.
PROBE = """from genericbuilders_vllm.base import AttentionMetadataBuilder as Ours
from vllm.v1.attention.backend import AttentionMetadataBuilder as Theirs


def probe(ours: Ours[int], theirs: Theirs[int]) -> None:
    reveal_type(ours.build)
    reveal_type(theirs.build)
"""
_SHOWN = 400


class UnresolvedError(RuntimeError):
    """A checker does not find a library that the builders stand on, so that its silence would mean nothing."""


@dataclass(frozen=True)
class Checked:
    """What one checker says about one package after its migration, compared with before.

    Attributes:
        package: the import package.
        checker: the checker's name.
        before: errors in the files that were rewritten, before.
        after: the same after.
        new: errors in migrated classes that were not there before.
        elsewhere: new errors in other places of the files.
        gone: errors that were there before.
    """

    package: str
    checker: str
    before: int
    after: int
    new: tuple[str, ...]
    elsewhere: tuple[str, ...]
    gone: int


def check_tree(root: Path, files: Sequence[str], caches: Path, warm: str | None = None) -> dict[str, list[Finding]]:
    """Run every checker over files of a tree that has `PROBE` in it.

    Args:
        root: the tree.
        files: relative paths.
        caches: where the checkers' caches are, by tree.
        warm: the name of the tree whose cache to start from.

    Returns:
        The errors, by checker.

    Raises:
        CheckerFailedError: one gave no result.
        UnresolvedError: one does not find vLLM or this library.
    """
    found: dict[str, list[Finding]] = {}
    for lane in LANES:
        name = lane.checker.name
        warm_from = None if warm is None else caches / f"{name}-{warm}"
        findings, _ = find(lane, root, [*files, PROBE_FILE], caches / f"{name}-{root.name}", warm_from)
        _check_probe(lane, findings)
        found[name] = [each for each in findings if each.kind == "error" and each.path != PROBE_FILE]
    return found


def differences(
    before: Mapping[str, Sequence[Finding]],
    after: Mapping[str, Sequence[Finding]],
    roots: tuple[Path, Path],
    packages: Sequence[Migrated],
) -> list[Checked]:
    """Compare the findings of two trees, package by package and checker by checker.

    Args:
        before: errors of the plain tree, by checker.
        after: those of the migrated one.
        roots: of the two trees.
        packages: what was migrated.
    """
    names: dict[str, frozenset[str]] = {}
    for each in (each for package in packages for each in package.classes):
        names[each.path] = names.get(each.path, frozenset()) | {each.name.rpartition(".")[2]}
    old, new = (Places(root, names) for root in roots)
    result: list[Checked] = []
    for package in packages:
        changed = set(package.changed)
        for checker in before:
            left, right = ([each for each in findings[checker] if each.path in changed] for findings in (before, after))
            delta = compare(left, right, old, new)
            result.append(
                Checked(
                    package.module,
                    checker,
                    len(left),
                    len(right),
                    tuple(_line(each) for each in delta.new if each.place.builder is not None),
                    tuple(_line(each) for each in delta.new if each.place.builder is None),
                    len(delta.gone),
                )
            )
    return result


def _check_probe(lane: Lane, findings: Sequence[Finding]) -> None:
    probed = [each for each in findings if each.path == PROBE_FILE]
    revealed = [each.message for each in probed if each.kind == "reveal"]
    if len(revealed) != 2 or any("Unknown" in each or each == "Any" for each in revealed):
        said = "; ".join(each.message for each in probed)
        raise UnresolvedError(f"{lane.checker.name} does not find vllm or genericbuilders: {said[:_SHOWN]}")


def _line(change: Change) -> str:
    found = change.finding
    return f"{found.path}:{found.line}: {change.place.scope}: {found.message} [{found.code}]"
