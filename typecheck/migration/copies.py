"""Copies packages, runs the command on the copies, and looks at what became of every file and builder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from genericbuilders.checkers.fields import Record, read_json
from genericbuilders.migration.result import Outcome, Target
from typecheck.out_of_tree.inventory import Builder
from typecheck.out_of_tree.packages import Unpacked

__all__ = ["CommandError", "Migrated", "MigratedClass", "copy_sources", "migrate_copy", "time_report"]


class CommandError(RuntimeError):
    """The command did not come to its end; the message has what it said."""


@dataclass(frozen=True)
class MigratedClass:
    """One builder class in the command's report; ``path`` is relative to the tree, ``left`` why it was refused."""

    path: str
    line: int
    name: str
    outcome: Outcome
    spec: str | None
    left: tuple[str, ...]


@dataclass(frozen=True)
class Migrated:
    """A package's copy after the command has rewritten it.

    Attributes:
        package: its distribution, with version.
        module: the import package.
        files: how many were read.
        changed: files that were rewritten, relative to the tree.
        classes: the builders in the report.
        rules: for each rule how often it changed something, and how often something was left.
        failures: files that the command skipped, with reasons.
        broken: files that no longer compile, with reasons.
        touched: files of which the report says nothing and that are not what they were.
        unreported: builders that are counted here and are not in the report.
        unexplained: builders that were refused without a reason.
        again: files that a second run would change.
    """

    package: str
    module: str
    files: int
    changed: tuple[str, ...]
    classes: tuple[MigratedClass, ...]
    rules: dict[str, tuple[int, int]]
    failures: tuple[str, ...]
    broken: tuple[str, ...]
    touched: tuple[str, ...]
    unreported: tuple[str, ...]
    unexplained: tuple[str, ...]
    again: tuple[str, ...]

    def count(self, outcome: Outcome) -> int:
        """How many classes had the outcome."""
        return sum(each.outcome is outcome for each in self.classes)

    @property
    def faults(self) -> tuple[str, ...]:
        """What must not be, one line each."""
        kinds = {
            "skipped": self.failures,
            "no longer compiles": self.broken,
            "changed though nothing is reported": self.touched,
            "not in the report": self.unreported,
            "refused without a reason": self.unexplained,
            "changed by a second run": self.again,
        }
        return tuple(f"{self.package}: {kind}: {each}" for kind, found in kinds.items() for each in found)


def copy_sources(root: Path, sources: Sequence[Unpacked], changed: Mapping[str, str]) -> None:
    """Fill ``root`` with copies of the sources; ``changed`` gives the text of files that differ or are added."""
    shutil.rmtree(root, ignore_errors=True)
    for source in sources:
        shutil.copytree(source.root / source.package.module, root / source.package.module)
    for name, text in changed.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def migrate_copy(root: Path, source: Unpacked, target: Target, builders: Sequence[Builder]) -> Migrated:
    """Have the command rewrite a package's copy.

    Args:
        root: the tree that has the copy.
        source: the package.
        target: what to rewrite to.
        builders: those that the copy has, found by other means than the command's.

    Raises:
        CommandError: the command did not come to its end.
    """
    module = source.package.module
    before = {path: path.read_bytes() for path in sorted((root / module).rglob("*.py"))}
    report = _command(root, module, target, "--write")
    after = {path: path.read_bytes() for path in sorted((root / module).rglob("*.py"))}
    files = report.records("files")
    changed = {file.text("path") for file in files if _is(file, "written")}
    differing = {_below(root, path) for path in {*before, *after} if before.get(path) != after.get(path)}
    classes = tuple(each for file in files for each in _classes(file))
    reported = {(each.path, each.line) for each in classes}
    second = _command(root, module, target, "--check")
    return Migrated(
        package=f"{source.package.name} {source.package.version}",
        module=module,
        files=len(before),
        changed=tuple(sorted(changed)),
        classes=classes,
        rules=_rules(report),
        failures=tuple(f"{each.text('path')}: {each.text('reason')}" for each in report.records("failures")),
        broken=tuple(_broken(root, before, after)),
        touched=tuple(sorted(differing ^ changed)),
        unreported=tuple(
            f"{each.path}:{each.line}: {each.name}" for each in builders if (each.path, each.line) not in reported
        ),
        unexplained=tuple(
            f"{each.path}:{each.line}: {each.name}"
            for each in classes
            if each.outcome is Outcome.REFUSED and not any(each.left)
        ),
        again=tuple(file.text("path") for file in second.records("files") if _is(file, "changed")),
    )


def time_report(root: Path, module: str, target: Target) -> float:
    """Seconds of wall-clock time that the command takes for its report on a package, start included.

    Raises:
        CommandError: it did not come to its end.
    """
    began = time.monotonic()
    _command(root, module, target)
    return time.monotonic() - began


def _command(root: Path, module: str, target: Target, *options: str) -> Record:
    command = [sys.executable, "-m", "genericbuilders.cli", "migrate", module, "--target", target, "--format", "json"]
    done = subprocess.run([*command, *options], cwd=root, capture_output=True, text=True, check=False)
    # 1 says that something would change, or that a file was skipped, which the report says, too.
    if done.returncode not in (0, 1) or not done.stdout.startswith("{"):
        raise CommandError(f"migrate {module} ended with {done.returncode}: {done.stderr[-2000:]}")
    return read_json(done.stdout, f"the report on {module}")


def _classes(file: Record) -> list[MigratedClass]:
    return [
        MigratedClass(
            file.text("path"),
            each.whole("line"),
            each.text("name"),
            Outcome(each.text("outcome")),
            each.optional_text("spec") or None,
            tuple(found.text("message") for found in each.records("findings") if not _is(found, "changes")),
        )
        for each in file.records("classes")
    ]


def _is(record: Record, key: str) -> bool:
    value = record.values[key]
    if not isinstance(value, bool):
        raise CommandError(f"{record.where}.{key} is {value!r}, neither true nor false")
    return value


def _rules(report: Record) -> dict[str, tuple[int, int]]:
    rules = report.record("rules")
    each = {str(name): rules.record(str(name)) for name in rules.values}
    return {name: (record.whole("changes"), record.whole("left")) for name, record in each.items()}


def _broken(root: Path, before: Mapping[Path, bytes], after: Mapping[Path, bytes]) -> list[str]:
    """Files that compile before and no longer do."""
    found: list[str] = []
    for path, data in after.items():
        why = _compiles(data, path)
        if why is not None and _compiles(before.get(path, b""), path) is None:
            found.append(f"{_below(root, path)}: {why}")
    return found


def _compiles(data: bytes, path: Path) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(data, str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            return str(error)
    return None


def _below(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()
