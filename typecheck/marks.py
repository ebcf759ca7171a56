"""What the cases themselves say, written down: which lines are marked, and whether a type could tell the mistake.

Where every checker is silent, a mark that stands on another line changes no result. Here it does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from typecheck import toml
from typecheck.corpus import Case, Corpus, Design

__all__ = ["FILE", "Marked", "MarksError", "marks_of", "moved", "read_marks", "write_marks"]

FILE: Final = "marks.toml"
_EXPRESSIBLE: Final = "expressible"
_MARK: Final = re.compile(r"\s*# E\??$")


class MarksError(ValueError):
    """The file cannot be read; the message says where it is and what to do."""


@dataclass(frozen=True)
class Marked:
    """One fault: whether a type could tell it, and by design the text of each line that is marked."""

    expressible: bool
    lines: Mapping[Design, tuple[str, ...]]


def marks_of(corpus: Corpus) -> dict[str, Marked]:
    """By `Fault.key`, what the corpus says.

    Raises:
        OSError: a case cannot be read.
    """
    return {
        fault.key: Marked(fault.expressible, {design: _texts(case) for design, case in fault.cases.items()})
        for fault in corpus.faults
    }


def write_marks(folder: Path, marks: Mapping[str, Marked]) -> Path:
    """Write them into ``folder``.

    Raises:
        OSError: that is not possible.
    """
    lines = ["# Written by `python -m typecheck run`; do not edit. The lines that are marked, by case and design."]
    for key, marked in sorted(marks.items()):
        lines += ["", f"[{toml.quoted(key)}]", f"{_EXPRESSIBLE} = {str(marked.expressible).lower()}"]
        lines += [f"{design} = [{', '.join(map(toml.quoted, texts))}]" for design, texts in marked.lines.items()]
    path = folder / FILE
    toml.replace(path, "\n".join(lines) + "\n")
    return path


def read_marks(folder: Path) -> dict[str, Marked]:
    """Those in ``folder``.

    Raises:
        MarksError: they are missing or malformed.
    """
    path = folder / FILE
    try:
        told = toml.load(path)
        return {key: _marked(key, toml.table(told, key)) for key in told}
    except (OSError, ValueError) as error:
        raise MarksError(f"{path}: {error}; `python -m typecheck run` writes it") from None


def moved(committed: Mapping[str, Marked], found: Mapping[str, Marked]) -> list[str]:
    """What differs, one line each; none if the two are equal."""
    old, new = _flat(committed), _flat(found)
    return [
        f"{FILE}: {key}: {old.get(key, 'nothing')} -> {new.get(key, 'nothing')}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _texts(case: Case) -> tuple[str, ...]:
    """The marked lines; one of several with the same text is told by its number among them."""
    lines = [line.strip() for line in case.path.read_text(encoding="utf-8").split("\n")]
    bare = [_MARK.sub("", line) for line in lines]
    total, seen = Counter(bare), Counter[str]()
    found: list[str] = []
    for number, (line, text) in enumerate(zip(lines, bare, strict=True), 1):
        seen[text] += 1
        if number in case.marks:
            found.append(line if total[text] == 1 else f"{line} ({seen[text]} of {total[text]})")
    return tuple(found)


def _marked(key: str, row: toml.Table) -> Marked:
    expressible = row.get(_EXPRESSIBLE)
    if not isinstance(expressible, bool):
        raise ValueError(f"{key}.{_EXPRESSIBLE} must be true or false")
    return Marked(expressible, {Design(name): toml.texts(row, name) for name in row if name != _EXPRESSIBLE})


def _flat(marks: Mapping[str, Marked]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, marked in marks.items():
        found[f"{key}: {_EXPRESSIBLE}"] = str(marked.expressible).lower()
        found |= {f"{key} ({design})": " | ".join(texts) for design, texts in marked.lines.items()}
    return found
