"""Runs mypy and pyright over a tree at the levels that suit code with imports that are not installed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from genericbuilders.checkers import Checker, Diagnostic, Level, Request, Severity, Status, check
from genericbuilders.checkers.mypy import Mypy
from genericbuilders.checkers.pyright import Pyright

__all__ = ["LANES", "CheckerFailedError", "Finding", "Lane", "find"]

_LINE_IN_TEXT = re.compile(r"\bline \d+")
_REVEALED = (re.compile(r'Revealed type is "(.*)"'), re.compile(r'Type of ".*" is "(.*)"', re.DOTALL))


class CheckerFailedError(RuntimeError):
    """A checker did not see every file, so that its counts would mean nothing."""


@dataclass(frozen=True, order=True)
class Finding:
    """One error or, where ``kind`` is ``reveal``, one revealed type; ``path`` is relative to the tree."""

    path: str
    line: int
    column: int
    code: str
    message: str
    kind: str = "error"


@dataclass(frozen=True)
class Lane:
    """A checker and its level; ``options`` says in words what the level is."""

    checker: Checker
    level: Level
    options: str


LANES: tuple[Lane, ...] = (
    Lane(
        Mypy(),
        Level("real", arguments=("--check-untyped-defs", "--ignore-missing-imports", "--follow-imports=silent")),
        "default level with --check-untyped-defs, --ignore-missing-imports and --follow-imports=silent",
    ),
    Lane(
        Pyright(),
        Level(
            "real",
            settings=(
                ("typeCheckingMode", "standard"),
                ("reportMissingImports", "none"),
                ("reportMissingModuleSource", "none"),
            ),
        ),
        "standard level without reportMissingImports and reportMissingModuleSource",
    ),
)


def find(
    lane: Lane, root: Path, files: Sequence[str], cache: Path, warm_from: Path | None = None
) -> tuple[list[Finding], str]:
    """Check ``files`` of the tree at ``root``.

    Args:
        lane: checker and level.
        root: the tree.
        files: relative paths of what is reported on.
        cache: the checker's cache for this tree.
        warm_from: the cache of another tree, to start from.

    Returns:
        The findings in order, and the checker's version.

    Raises:
        CheckerFailedError: it is missing, crashed, ran out of time or stopped early.
    """
    if warm_from is not None and warm_from.is_dir() and not cache.exists():
        shutil.copytree(warm_from, cache)
    request = Request(
        files=tuple(root.absolute() / file for file in files),
        root=root.absolute(),
        python_version="3.12",
        cache_dir=cache,
        time_limit=1800.0,
    )
    run = check(lane.checker, lane.level, request)
    if run.status is not Status.OK:
        raise CheckerFailedError(f"{lane.checker.name} over {root}: {run.status}: {run.reason}")
    return sorted(
        _finding(each, root.absolute()) for each in run.diagnostics if _counts(each)
    ), run.version or "unknown"


def _counts(diagnostic: Diagnostic) -> bool:
    return diagnostic.severity is Severity.ERROR or _revealed(diagnostic) is not None


def _revealed(diagnostic: Diagnostic) -> str | None:
    if diagnostic.severity is not Severity.INFORMATION:
        return None
    for pattern in _REVEALED:
        match = pattern.fullmatch(diagnostic.message)
        if match is not None:
            return match.group(1)
    return None


def _finding(diagnostic: Diagnostic, root: Path) -> Finding:
    revealed = _revealed(diagnostic)
    path = diagnostic.path.relative_to(root).as_posix()
    if revealed is not None:
        return Finding(path, diagnostic.line, diagnostic.column, "", revealed, "reveal")
    return Finding(path, diagnostic.line, diagnostic.column, diagnostic.code, _tidy(diagnostic.message))


def _tidy(message: str) -> str:
    # One line, and no line numbers that a patch may move.
    text = " / ".join(part.strip() for part in message.replace("\xa0", " ").splitlines() if part.strip())
    return _LINE_IN_TEXT.sub("line N", text)
