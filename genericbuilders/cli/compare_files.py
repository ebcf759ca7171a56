"""The files to compare on, and where the modules that they import are found."""

from __future__ import annotations

import ast
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from genericbuilders.cli.errors import UserError

__all__ = ["Source", "Sources", "collect", "import_bases"]

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
        if path.is_dir():
            files = _in_folder(path, left_out)
            if not files:
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


def import_bases(files: Sequence[Source], root: Path, search_paths: Sequence[Path]) -> tuple[Path, ...]:
    """The folders, beside the root and the search paths, from which the files' modules have to be named.

    A folder is one only where a file's imports need it: mypy refuses a module that has two names.
    """
    bases = [root, *search_paths]
    starts = {source.path: _package_start(source.path.parent) for source in files}
    for source in files:
        candidates = [*_upwards(starts[source.path], _package_start(source.top)), root / "src"]
        names, has_relative = _imports(source.text)
        for name in names:
            if not any(_provides(base, name) for base in bases):
                bases += [each for each in candidates if _provides(each, name)][:1]
        if has_relative and not _is_inside(source.path, bases):
            bases.append(starts[source.path])
    # Files of one name in different folders are different modules only when seen from above.
    outside = {starts[source.path] for source in files if not _is_inside(source.path, bases)}
    if len(outside) > 1:
        bases.append(Path(os.path.commonpath(outside)))
    return tuple(dict.fromkeys(bases[1 + len(search_paths) :]))


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
    return not hidden and folder.name not in FOREIGN_FOLDERS and not (folder / "pyvenv.cfg").exists()


def _read(path: Path, top: Path) -> Source:
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
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x} at position {error.start}"
        raise _UnusableError(f"{byte} is not UTF-8, all that every checker reads; save it as UTF-8") from None
    except OSError as error:
        raise _UnusableError(error.strerror or str(error)) from None
    return Source(path, text, top)


def _package_start(folder: Path) -> Path:
    """The nearest folder, upwards, that is no regular package."""
    while folder != folder.parent and any((folder / f"__init__{suffix}").is_file() for suffix in SUFFIXES):
        folder = folder.parent
    return folder


def _upwards(low: Path, high: Path) -> Iterator[Path]:
    yield low
    if high in low.parents:
        while low != high:
            low = low.parent
            yield low


def _imports(text: str) -> tuple[list[str], bool]:
    """The first part of each module that is imported and is not Python's own; whether there is a relative import."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # The checkers will say what is wrong.
        return [], False
    names: set[str] = set()
    has_relative = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            has_relative |= node.level > 0
            if node.level == 0 and node.module is not None:
                names.add(node.module.partition(".")[0])
    return sorted(names - sys.stdlib_module_names), has_relative


def _provides(folder: Path, name: str) -> bool:
    return (folder / name).is_dir() or any((folder / f"{name}{suffix}").is_file() for suffix in SUFFIXES)


def _is_inside(path: Path, folders: Sequence[Path]) -> bool:
    return any(folder in path.parents for folder in folders)
