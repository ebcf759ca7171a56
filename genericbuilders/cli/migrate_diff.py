"""A unified diff that ``git apply`` and ``patch`` take, in the bytes of the file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from difflib import unified_diff as compare_lines

from genericbuilders.migration.files import BOM, SourceFile

__all__ = ["Diff", "unified_diff"]

NO_NEWLINE = "\n\\ No newline at end of file\n"


@dataclass(frozen=True)
class Diff:
    """A file's diff as text, and as bytes in the encoding of the file."""

    text: str
    data: bytes


def unified_diff(source: SourceFile, after: str, name: str) -> Diff:
    """The difference between a file and its new text.

    Args:
        source: the file.
        after: its new text, which its encoding can write.
        name: its path in the diff's head; ``a/`` and ``b/`` are put before a relative one.
    """
    mark = BOM if source.bom else ""
    old, new = (name, name) if os.path.isabs(name) else (f"a/{name}", f"b/{name}")
    lines = compare_lines(_lines(mark + source.text), _lines(mark + after), old, new)
    # The head's lines are difflib's own; the others end as the file's do.
    head = [next(lines, ""), next(lines, "")]
    body = [line if line.endswith("\n") else line + NO_NEWLINE for line in lines]
    return Diff(
        "".join([*head, *body]),
        b"".join([*map(os.fsencode, head), *(line.encode(source.encoding) for line in body)]),
    )


def _lines(text: str) -> list[str]:
    """Lines as ``patch`` counts them: nothing but a line feed ends one."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + parts[-1:] * bool(parts[-1])
