"""The versions of the checkers that the study is of, as they are pinned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from genericbuilders.checkers import CHECKERS
from typecheck.verdict import Result

__all__ = ["PINS", "PinError", "others", "read_pins"]

PINS: Final = "requirements.txt"
_PIN = re.compile(r"([\w.-]+)==([^\s;]+)\s*(;.*)?")


class PinError(ValueError):
    """The pins cannot be read; the message says where."""


def read_pins(path: Path) -> dict[str, str]:
    """By checker, the version that ``path`` pins.

    Raises:
        PinError: it cannot be read, pins no version in some line, or leaves a checker out.
    """
    versions: dict[str, str] = {}
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            requirement = line.partition("#")[0].strip()
            if requirement:
                found = _PIN.fullmatch(requirement)
                if found is None:
                    raise PinError(f"{path}:{number}: {requirement!r} is no package==version")
                versions[found[1]] = found[2]
    except (OSError, UnicodeDecodeError) as error:
        raise PinError(f"{path}: {error}") from None
    if missing := [checker.package for checker in CHECKERS if checker.package not in versions]:
        raise PinError(f"{path}: it pins no version of {', '.join(missing)}")
    return {checker.name: versions[checker.package] for checker in CHECKERS}


def others(pins: Mapping[str, str], results: Iterable[Result]) -> list[str]:
    """The checkers of which another version ran than is pinned, one line each."""
    ran = dict.fromkeys((result.checker, result.version) for result in results)
    return [
        f"{PINS}: {checker} is pinned at {pins[checker]}, and {version} is installed"
        for checker, version in ran
        if pins[checker] != version
    ]
