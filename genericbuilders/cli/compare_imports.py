"""Where the modules that files import are found, and the folder from which the files themselves are named."""

from __future__ import annotations

import ast
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from genericbuilders.cli.compare_files import SUFFIXES, Source

__all__ = ["Places", "import_places"]


@dataclass(frozen=True)
class Places:
    """Folders that modules are named from.

    Attributes:
        root: the current folder, or the one where the package starts that the current folder is in.
        bases: more folders, beside the root and the search paths that were named.
    """

    root: Path
    bases: tuple[Path, ...]


@dataclass(frozen=True)
class _Imports:
    """What a file imports: first parts of names that are not Python's; levels of relative ones with what they name."""

    names: tuple[str, ...] = ()
    relative: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class _Claim:
    """By its imports, a file takes ``package`` for a package in ``base``."""

    package: Path
    base: Path


def import_places(files: Sequence[Source], folder: Path, search_paths: Sequence[Path]) -> Places:
    """The folders from which the files' modules have to be named.

    A base is one only where a file's imports need it: mypy refuses a module that has two names. For the same reason the
    current folder does not count where the imports say that it is inside a package: its modules are that package's.

    Args:
        files: what is compared on.
        folder: the current folder.
        search_paths: those that were named; where the current folder is among them, it stays.
    """
    imports = {source.path: _imports(source.text) for source in files}
    root = folder if folder in search_paths else _root(files, imports, folder, search_paths)
    bases = [root, *search_paths]
    starts = {source.path: _package_start(source.path.parent) for source in files}
    for source in files:
        for name in imports[source.path].names:
            if not any(_provides(base, name) for base in bases):
                bases += [each for each in (*_candidates(source), root / "src") if _provides(each, name)][:1]
        if imports[source.path].relative and not _is_inside(source.path, bases):
            claims = list(_relative_claims(source, imports[source.path]))
            bases.append(claims[-1].base if claims else starts[source.path])
    # Files of one name in different folders are different modules only when seen from above.
    outside = {starts[source.path] for source in files if not _is_inside(source.path, bases)}
    if len(outside) > 1:
        bases.append(Path(os.path.commonpath(outside)))
    return Places(root, tuple(dict.fromkeys(bases[1 + len(search_paths) :])))


def _root(files: Sequence[Source], imports: dict[Path, _Imports], folder: Path, search_paths: Sequence[Path]) -> Path:
    root = folder
    while True:
        known = (root, *search_paths)
        claims = [
            claim
            for source in files
            for found in (
                _absolute_claims(source, imports[source.path], known),
                _relative_claims(source, imports[source.path]),
            )
            for claim in found
            if claim.package == root or claim.package in root.parents
        ]
        if not claims:
            return root
        root = min((claim.base for claim in claims), key=lambda base: len(base.parts))


def _absolute_claims(source: Source, imports: _Imports, known: Sequence[Path]) -> Iterator[_Claim]:
    for name in imports.names:
        if not any(_provides(base, name) for base in known):
            for base in _candidates(source):
                if os.path.isdir(base / name):
                    yield _Claim(base / name, base)
                    break


def _relative_claims(source: Source, imports: _Imports) -> Iterator[_Claim]:
    """What relative imports say, innermost first; those that no package could have say nothing."""
    folder = source.path.parent
    start = _package_start(folder)
    for level, name in imports.relative:
        if level > len(folder.parents):
            return
        package = (folder, *folder.parents)[level - 1]
        # In a regular package the import goes too far up, or it is right; in any other folder only what is there tells.
        fits = start in package.parents if start != folder else _provides(package, name)
        base = _package_start(package.parent)
        if fits and package != base and all(part.isidentifier() for part in package.relative_to(base).parts):
            yield _Claim(package, base)


def _candidates(source: Source) -> Iterator[Path]:
    """Folders from which a file's imports may be meant: where its package starts, and up to what was named."""
    low, high = _package_start(source.path.parent), _package_start(source.top)
    yield low
    if high in low.parents:
        while low != high:
            low = low.parent
            yield low


def _package_start(folder: Path) -> Path:
    """The nearest folder, upwards, that is no regular package."""
    while folder != folder.parent and any(os.path.isfile(folder / f"__init__{suffix}") for suffix in SUFFIXES):
        folder = folder.parent
    return folder


def _imports(text: str) -> _Imports:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # The checkers will say what is wrong.
        return _Imports()
    names: set[str] = set()
    relative: set[tuple[int, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            wanted = [node.module] if node.module is not None else [alias.name for alias in node.names]
            first = {each.partition(".")[0] for each in wanted}
            if node.level:
                relative.update((node.level, each) for each in first)
            else:
                names.update(first)
    return _Imports(tuple(sorted(names - sys.stdlib_module_names)), tuple(sorted(relative)))


def _provides(folder: Path, name: str) -> bool:
    return os.path.isdir(folder / name) or any(os.path.isfile(folder / f"{name}{suffix}") for suffix in SUFFIXES)


def _is_inside(path: Path, folders: Sequence[Path]) -> bool:
    return any(folder in path.parents for folder in folders)
