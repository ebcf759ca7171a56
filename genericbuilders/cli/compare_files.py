"""The files to compare on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from genericbuilders.cli.errors import UserError

__all__ = ["SUFFIXES", "Source", "Sources", "collect"]

SUFFIXES = (".py", ".pyi")
# Not of the project, though inside its folder.
FOREIGN_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})


@dataclass(frozen=True)
class Source:
    """A file that every checker can read.

    Attributes:
        path: absolute.
        text: what is in it.
        top: the folder that was named, or in which the named file is.
    """

    path: Path
    text: str
    top: Path

    @property
    def lines(self) -> list[str]:
        """The text's lines as checkers count them: other characters than line feeds and returns end none."""
        return self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@dataclass(frozen=True)
class Sources:
    """Files, and what was left out of the folders that were named: paths and reasons."""

    files: tuple[Source, ...]
    left_out: tuple[tuple[Path, str], ...]


class _UnusableError(Exception):
    """A file that not every checker could read; the message says why."""


def collect(paths: Sequence[Path]) -> Sources:
    """Find the Python files that are named or are in folders that are named, each once.

    Raises:
        UserError: a path that cannot be used, or a folder without Python files.
    """
    if not paths:
        raise UserError("there is nothing to compare; name files or folders")
    found: dict[str, Source] = {}
    left_out: list[tuple[Path, str]] = []
    for named in paths:
        path = Path(os.path.abspath(named))
        if os.path.isdir(path):
            files = _in_folder(path, left_out)
            if not files:
                if left_out and left_out[-1][0] == path:
                    raise UserError(f"{named}: {left_out[-1][1]}")
                reasons = "".join(f"; left out: {each} ({why})" for each, why in left_out if path in each.parents)
                raise UserError(f"{named}: there is no Python file in it that can be compared{reasons}")
        else:
            try:
                files = [_read(path, path.parent)]
            except _UnusableError as error:
                raise UserError(f"{named}: {error}") from None
        for source in files:
            found.setdefault(os.path.realpath(source.path), source)
    return Sources(tuple(found.values()), tuple(left_out))


def _in_folder(top: Path, left_out: list[tuple[Path, str]]) -> list[Source]:
    def refused(error: OSError) -> None:
        left_out.append((Path(str(error.filename)), error.strerror or str(error)))

    files: list[Source] = []
    for folder, subfolders, names in os.walk(top, onerror=refused):
        subfolders[:] = sorted(name for name in subfolders if _is_own(Path(folder, name)))
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix not in SUFFIXES:
                continue
            if path.suffix == ".py" and f"{path.stem}.pyi" in names:
                left_out.append((path, "there is a stub beside it, which others see; name the file to have it checked"))
                continue
            try:
                files.append(_read(path, top))
            except _UnusableError as error:
                left_out.append((path, str(error)))
    return files


def _is_own(folder: Path) -> bool:
    hidden = folder.name.startswith(".")
    return not hidden and folder.name not in FOREIGN_FOLDERS and not os.path.exists(folder / "pyvenv.cfg")


def _read(path: Path, top: Path) -> Source:
    try:
        return Source(path, _text(path), top)
    except OSError as error:
        raise _UnusableError(error.strerror or str(error)) from None


def _text(path: Path) -> str:
    if path.is_symlink() and not path.exists():
        raise _UnusableError(f"it is a link to {os.readlink(path)}, which is not there")
    if not path.exists():
        raise _UnusableError("there is no such file or folder")
    if not path.is_file():
        raise _UnusableError("it is neither a file nor a folder")
    if path.suffix not in SUFFIXES:
        raise _UnusableError("it is not a Python file; the name must end in .py or .pyi")
    try:
        os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError:
        raise _UnusableError("its name is not UTF-8; rename it") from None
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x} at position {error.start}"
        raise _UnusableError(f"{byte} is not UTF-8, all that every checker reads; save it as UTF-8") from None
