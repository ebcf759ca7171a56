"""mypy."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path
from typing import ClassVar

from genericbuilders.checkers.checker import Checker, Command, Level, Output, Request
from genericbuilders.checkers.diagnostic import Diagnostic, Severity
from genericbuilders.checkers.fields import Record, read_json

__all__ = ["Mypy"]

SEVERITIES = {"error": Severity.ERROR, "warning": Severity.WARNING, "note": Severity.INFORMATION}
BLOCKED = 2
KEPT_SECONDS = 14 * 24 * 3600
# Changed where entries written before would be wrong now.
CACHE_FORMAT = b"absolute paths "


class Mypy(Checker):
    """mypy, with a warm cache of its own for each level and interpreter."""

    name: ClassVar[str] = "mypy"
    package: ClassVar[str] = "mypy"
    tested: ClassVar[str] = "2.4.1"
    levels: ClassVar[tuple[Level, ...]] = (Level("default"), Level("strict", arguments=("--strict",)))
    weight: ClassVar[float] = 5.0

    def command(self, executable: Path, level: Level, request: Request, scratch: Path) -> Command:
        """See `Checker.command`."""
        empty = scratch / "mypy.ini"
        empty.write_text("[mypy]\n", encoding="utf-8")
        arguments = (
            str(executable),
            f"--config-file={empty}",
            f"--cache-dir={self._cache(level, request)}",
            "--output=json",
            # Its cache keeps reports as they were written: a relative path would be wrong from another folder.
            "--show-absolute-path",
            f"--python-executable={request.python}",
            f"--python-version={request.python_version}",
            # Modules are named from the folders of MYPYPATH, so that two files may have the same name.
            "--namespace-packages",
            "--explicit-package-bases",
            *level.arguments,
            "--",
            *map(str, request.files),
        )
        return Command(arguments, {"MYPYPATH": os.pathsep.join(map(str, request.import_paths))})

    def parse(self, output: Output, request: Request) -> tuple[Diagnostic, ...]:
        """See `Checker.parse`."""
        lines = [line for line in output.stdout.splitlines() if line.strip()]
        return tuple(_diagnostic(read_json(line, f"line {number} of output")) for number, line in enumerate(lines, 1))

    def incomplete(self, output: Output, found: tuple[Diagnostic, ...]) -> str | None:
        """See `Checker.incomplete`. Syntax errors and unclear module names stop mypy."""
        if output.exit_code != BLOCKED or not found:
            return None
        first = found[0]
        told = first.message.partition("\n")[0]
        return f"stopped before any other file was checked: {first.path}:{first.line}: {told}"

    def version_of(self, text: str) -> str:
        """See `Checker.version_of`."""
        return super().version_of(text).partition(" (")[0]

    def _cache(self, level: Level, request: Request) -> str:
        # mypy keeps one entry a module name, with its reports: for another interpreter's packages it would write all of
        # them anew, and of a module of the same name and text elsewhere it would report the old file.
        owner = hashlib.sha256(CACHE_FORMAT)
        for path in (request.python, *request.import_paths, *_unnamed(request)):
            owner.update(os.fsencode(path) + b"\0")
        root = request.cache()
        folder = root / f"{self.label(level)}-{owner.hexdigest()[:12]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
            _forget_unused(root, f"{self.label(level)}-*")
        except OSError:
            return os.devnull
        return str(folder)


def _diagnostic(record: Record) -> Diagnostic:
    hint = record.optional_text("hint")
    message = record.text("message")
    return Diagnostic(
        path=Path(record.text("file")),
        line=max(1, record.whole("line")),
        column=max(1, record.whole("column") + 1),
        severity=record.choice("severity", SEVERITIES),
        code=record.optional_text("code"),
        message=f"{message}\n{hint}" if hint else message,
    )


def _unnamed(request: Request) -> list[Path]:
    """The folders of files whose module's name does not have the whole path in it: others can have the same name."""
    found: set[Path] = set()
    for folder in {file.parent for file in request.files}:
        below = [path for path in request.import_paths if path == folder or path in folder.parents]
        parts = folder.relative_to(max(below, key=lambda path: len(path.parts))).parts if below else ("",)
        if not all(part.isidentifier() for part in parts):
            found.add(folder)
    return sorted(found)


def _forget_unused(root: Path, pattern: str) -> None:
    """Remove caches of projects that nobody has checked for long."""
    oldest = time.time() - KEPT_SECONDS
    for folder in root.glob(pattern):
        if folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)
