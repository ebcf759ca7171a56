"""Migrates copies of the packages to both targets, and has the checkers look at them before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from genericbuilders.migration.result import Outcome, Target
from typecheck.migration.checked import PROBE, PROBE_FILE, Checked, check_tree, differences
from typecheck.migration.copies import Migrated, copy_sources, migrate_copy, time_report
from typecheck.out_of_tree.packages import PACKAGES, VLLM, Unpacked, fetch
from typecheck.out_of_tree.study import Study

__all__ = ["MAX_SECONDS", "NAMES", "Measured", "MissingError", "faults", "measure", "sources"]

NAMES = ("vllm-rbln", "vllm-kunlun", "vllm-spyre", "vllm-omni", VLLM.name)
MAX_SECONDS = 60.0
_PLAIN = "plain"


class MissingError(RuntimeError):
    """A package cannot be had; the message names it and says why."""


@dataclass(frozen=True)
class Measured:
    """What came of migrating all packages to one target; ``seconds`` is the time of vLLM's whole tree."""

    target: Target
    packages: tuple[Migrated, ...]
    checked: tuple[Checked, ...]
    seconds: float


def sources(cache: Path) -> list[Unpacked]:
    """The packages, fetched where the cache lacks them.

    Raises:
        MissingError: one cannot be had.
    """
    wanted = [package for name in NAMES for package in PACKAGES if package.name == name]
    found, missing = fetch(wanted, cache)
    if missing:
        raise MissingError("; ".join(f"{name} cannot be had: {why}" for name, why in missing.items()))
    return found


def measure(found: Sequence[Unpacked], work: Path, say: Callable[[str], None]) -> list[Measured]:
    """Migrate and check the packages.

    Args:
        found: vLLM and the others.
        work: a folder for trees and caches.
        say: told what is being done.

    Raises:
        CommandError, CheckerFailedError, UnresolvedError: something gave no result.
    """
    say("counting builders")
    # What peers import from places that vLLM no longer has is mended, or checkers would know nothing of it.
    study = Study.prepare(found, work)
    extra = {**study.shims, PROBE_FILE: PROBE}
    trees = work / "trees"
    copy_sources(trees / _PLAIN, found, extra)
    migrated: dict[Target, tuple[Migrated, ...]] = {}
    seconds: dict[Target, float] = {}
    for target in Target:
        say(f"{target}: timing vLLM's tree")
        seconds[target] = time_report(trees / _PLAIN, VLLM.module, target)
        root = trees / target
        copy_sources(root, found, extra)
        each: list[Migrated] = []
        for source in found:
            say(f"{target}: {source.package.name}")
            builders = [one for one in study.inventory.builders if one.package == source.package.module]
            each.append(migrate_copy(root, source, target, builders))
        migrated[target] = tuple(each)
    files = sorted({file for packages in migrated.values() for package in packages for file in package.changed})
    say(f"checking {len(files)} files as they were")
    caches = work / "checker-caches"
    before = check_tree(trees / _PLAIN, files, caches)
    result: list[Measured] = []
    for target, packages in migrated.items():
        say(f"{target}: checking")
        after = check_tree(trees / target, files, caches, _PLAIN)
        checked = differences(before, after, (trees / _PLAIN, trees / target), packages)
        result.append(Measured(target, packages, tuple(checked), seconds[target]))
    return result


def faults(measured: Measured) -> list[str]:
    """What must not be, one line each."""
    lines = [line for package in measured.packages for line in package.faults]
    lines += [f"{each.checker}: new in a migrated class: {line}" for each in measured.checked for line in each.new]
    if measured.seconds >= MAX_SECONDS:
        lines.append(f"vLLM's tree took {measured.seconds:.0f} s; it must take less than {MAX_SECONDS:.0f} s")
    if not any(package.count(Outcome.MIGRATED) for package in measured.packages):
        lines.append("nothing was migrated")
    return [f"{measured.target}: {line}" for line in lines]
