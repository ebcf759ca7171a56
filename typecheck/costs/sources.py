"""Which files are a design's: its core, and what back-end and runner authors write upon it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from typecheck.corpus import Corpus, Design

__all__ = ["BACK_ENDS", "Sources", "SourcesError", "sources"]

CORE = "core.py"
PACKAGE = "__init__.py"
BACK_ENDS = ("attention.py", "state.py", "plugin.py")
"""The files with builders."""


class SourcesError(ValueError):
    """A module of a design's core is not where it is imported from; the message says which."""


@dataclass(frozen=True)
class Sources:
    """The text of each file of a design.

    Attributes:
        core: the base, the groups and what else every back end stands on. Where the design's own core hands on a
            package's modules, those.
        authors: everything else: builders, plug-in, runner, layers, program, managers.
        back_ends: those of the latter that have builders.
    """

    core: tuple[str, ...]
    authors: tuple[str, ...]
    back_ends: tuple[str, ...]


def sources(corpus: Corpus, design: Design) -> Sources:
    """Read them; what the designs share is no design's.

    Raises:
        SourcesError: a module that the core hands on is not there.
    """
    own = [path for path in corpus.programs[design] if path.parent.name == design]
    core = [path for path in own if path.name == CORE]
    handed_on = [path for each in core for path in _handed_on(each, corpus.folder.parent)]
    return Sources(
        core=_texts([*core, *handed_on]),
        authors=_texts([path for path in own if path not in core]),
        back_ends=_texts([path for path in own if path.name in BACK_ENDS]),
    )


def _texts(paths: list[Path]) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8") for path in paths)


def _handed_on(path: Path, root: Path) -> list[Path]:
    """The modules of which a module only hands on names, those of packages among them: it defines nothing itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if any(isinstance(node, ast.ClassDef | ast.FunctionDef) for node in tree.body):
        return []
    found: list[Path] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            file = _file(node.module, root)
            if file is not None:
                found += [file, *(_handed_on(file, root) if file.name == PACKAGE else [])]
    return list(dict.fromkeys(found))


def _file(module: str, root: Path) -> Path | None:
    """A module's file below ``root``; ``None``: it is somebody else's.

    Raises:
        SourcesError: it should be there, and is not: what is not read would count as nothing.
    """
    top, place = root / module.partition(".")[0], root.joinpath(*module.split("."))
    if not top.is_dir():
        return None
    for file in (place.with_suffix(".py"), place / PACKAGE):
        if file.is_file():
            return file
    raise SourcesError(f"{module} is neither {place.with_suffix('.py')} nor a package")
