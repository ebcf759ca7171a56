"""Which checkers run at which levels, and with which interpreter's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from genericbuilders.checkers import CHECKERS, Checker, Level, NotFoundError, OverrideError
from genericbuilders.cli.errors import UserError

__all__ = ["check_overrides", "choose_levels", "find_python", "python_version"]

VERSION_TIME_LIMIT = 20.0
VERSION_SCRIPT = "import sys; print('%d.%d' % sys.version_info[:2])"


def choose_levels(
    checkers: Sequence[str], levels: Sequence[str], known: Sequence[Checker] = CHECKERS
) -> list[tuple[Checker, Level]]:
    """The levels to run, in the order of the catalogue.

    Args:
        checkers: names; empty: all.
        levels: names such as ``strict`` or labels such as ``mypy-strict``; empty: all.
        known: the catalogue.

    Raises:
        UserError: a name that is not known, or one that leaves nothing to run.
    """
    names = [checker.name for checker in known]
    for name in checkers:
        if name not in names:
            raise UserError(f"--checker {name}: there is no such checker; there are {', '.join(names)}")
    chosen = [checker for checker in known if not checkers or checker.name in checkers]
    labels = [checker.label(level) for checker in chosen for level in checker.levels]
    for name in levels:
        if not any(_fits(name, checker, level) for checker in chosen for level in checker.levels):
            raise UserError(f"--level {name}: there is no such level here; there are {', '.join(labels)}")
    pairs = [
        (checker, level)
        for checker in chosen
        for level in checker.levels
        if not levels or any(_fits(name, checker, level) for name in levels)
    ]
    for name in checkers:
        if not any(checker.name == name for checker, _ in pairs):
            raise UserError(
                f"--checker {name}: it has none of the levels {', '.join(levels)}; leave one of the two out"
            )
    return pairs


def check_overrides(checkers: Iterable[Checker]) -> None:
    """See that the environment variables which say what executable to use name programs.

    Raises:
        UserError: one does not.
    """
    for checker in checkers:
        try:
            _ = checker.locate()
        except OverrideError as error:
            raise UserError(f"{error}; name one, or unset it") from None
        except NotFoundError:
            continue


def find_python(wanted: str | None) -> Path:
    """The interpreter whose packages are seen: the one wanted, else the active environment's, else this one.

    Raises:
        UserError: the one wanted cannot be executed.
    """
    if wanted is None:
        active = os.environ.get("VIRTUAL_ENV")
        found = shutil.which("python", path=str(Path(active, "bin"))) if active else None
        return Path(os.path.abspath(found or sys.executable))
    found = shutil.which(os.path.expanduser(wanted))
    if found is None:
        hint = f"; name {Path(wanted, 'bin', 'python')}" if wanted and os.path.isdir(wanted) else ""
        raise UserError(f"--python {wanted or repr(wanted)}: there is no such program{hint}")
    return Path(os.path.abspath(found))


def python_version(python: Path) -> str:
    """The interpreter's version, such as ``3.11``.

    Raises:
        UserError: it is no Python interpreter.
    """
    if python == Path(os.path.abspath(sys.executable)):
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    command = [str(python), "-I", "-S", "-c", VERSION_SCRIPT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_TIME_LIMIT, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        raise UserError(f"--python {python}: it is no Python interpreter: {error}") from None
    version = done.stdout.strip()
    major, _, minor = version.partition(".")
    if done.returncode or not (major.isdecimal() and minor.isdecimal()):
        raise UserError(f"--python {python}: it is no Python interpreter: it does not tell its version")
    if int(major) < 3:
        raise UserError(f"--python {python}: it is Python {version}; the checkers know Python 3 only")
    return version


def _fits(name: str, checker: Checker, level: Level) -> bool:
    return name in (level.name, checker.label(level))
