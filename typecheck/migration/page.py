"""The page of results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from genericbuilders.migration.result import Outcome
from typecheck.migration.checked import Checked
from typecheck.migration.copies import Migrated
from typecheck.migration.measure import MAX_SECONDS, Measured
from typecheck.out_of_tree.checking import LANES

__all__ = ["COMMAND", "render"]

COMMAND = "make migrate-packages"
_HEAD = f"""# What migration does to released packages

Made by `{COMMAND}`, which copies each package, has [`genericbuilders migrate --write`](migrate.md) rewrite the copy,
and compares. Figures are of files as they are released; nothing of them is kept here.
"""


def render(results: Sequence[Measured], cpus: int) -> str:
    """The page in Markdown.

    Args:
        results: one for each target.
        cpus: of the machine on which times were taken.
    """
    return "\n".join([_HEAD, *_time(results, cpus), *(line for each in results for line in _target(each)), *_levels()])


def _time(results: Sequence[Measured], cpus: int) -> Iterator[str]:
    files = next((package.files for package in results[0].packages if package.module == "vllm"), 0)
    times = ", ".join(f"{each.seconds:.0f} s (`--target {each.target}`)" for each in results)
    yield f"vLLM's whole tree, {files} files, takes {times} on {cpus} cores; the limit is {MAX_SECONDS:.0f} s.\n"


def _target(measured: Measured) -> Iterator[str]:
    yield f"## `--target {measured.target}`\n"
    yield "| package | files | rewritten | builders | migrated | unchanged | refused | skipped | second run changes |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for package in measured.packages:
        outcomes = " | ".join(str(package.count(outcome)) for outcome in Outcome)
        yield (
            f"| {package.package} | {package.files} | {len(package.changed)} | {len(package.classes)} | {outcomes} "
            f"| {len(package.failures)} | {len(package.again)} |"
        )
    yield ""
    broken = sum(len(package.broken) for package in measured.packages)
    touched = sum(len(package.touched) for package in measured.packages)
    missed = sum(len(package.unreported) for package in measured.packages)
    yield (
        f"Files that no longer compile: {broken}. Files of which the report says nothing and that differ: {touched}. "
        f"Builders that an inventory of the syntax counts and the report lacks: {missed}.\n"
    )
    yield from _errors(measured.checked)
    yield from _rules(measured.packages)
    yield from _refused(measured.packages)
    yield from _listed("New errors in migrated classes", [line for each in measured.checked for line in each.new])
    yield from _listed(
        "New errors elsewhere in rewritten files", [line for each in measured.checked for line in each.elsewhere]
    )


def _errors(checked: Sequence[Checked]) -> Iterator[str]:
    yield "### Errors in the rewritten files\n"
    yield "| package | checker | before | after | new in migrated classes | new elsewhere | gone |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    for each in checked:
        cells = (each.before, each.after, len(each.new), len(each.elsewhere), each.gone)
        yield f"| {each.package} | {each.checker} | {' | '.join(map(str, cells))} |"
    yield ""


def _rules(packages: Sequence[Migrated]) -> Iterator[str]:
    changes: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for package in packages:
        for rule, (changed, kept) in package.rules.items():
            changes[rule] += changed
            left[rule] += kept
    yield "### Rules\n"
    yield "| rule | changes | left |"
    yield "|---|--:|--:|"
    for rule in sorted({*changes, *left}):
        yield f"| `{rule}` | {changes[rule]} | {left[rule]} |"
    yield ""


def _refused(packages: Sequence[Migrated]) -> Iterator[str]:
    refused = [each for package in packages for each in package.classes if each.outcome is Outcome.REFUSED]
    if not refused:
        return
    yield "### Refused\n"
    for each in refused:
        yield f"* `{each.path}:{each.line}` `{each.name}`: {_plain('; '.join(each.left))}"
    yield ""


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    if not lines:
        return
    yield f"### {title}\n"
    for line in lines:
        yield f"* {_plain(line)}"
    yield ""


def _levels() -> Iterator[str]:
    yield "## Levels\n"
    for lane in LANES:
        yield f"* {lane.checker.name} {lane.checker.tested}: {lane.options}"
    yield ""


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>#" else char for char in " ".join(text.split()))
