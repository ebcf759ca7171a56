"""Form feeds before statements, which LibCST drops."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

__all__ = ["with_form_feeds"]

_FRONT = re.compile(r"[ \t\f]*")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")


def with_form_feeds(text: str, read: str, after: str) -> str:
    """Put back what is missing.

    Args:
        text: the file as it was.
        read: the same as LibCST gives it back.
        after: what it was rewritten to. A line that is not in it any more leaves its form feed to the next one.
    """
    if text == read:
        return after
    old, new = _LINE.findall(text), _LINE.findall(after)
    fronts = [_front(before, line) for before, line in zip(old, _LINE.findall(read), strict=True)]
    pending = ""
    matcher = SequenceMatcher(None, _LINE.findall(read), new, autojunk=False)
    for kind, start, end, at, _ in matcher.get_opcodes():
        if kind != "equal":
            pending += "\f" if any(fronts[start:end]) else ""
            continue
        for offset in range(end - start):
            front = fronts[start + offset] or pending
            if front and new[at + offset].strip():
                new[at + offset] = front + new[at + offset].lstrip(" \t\f") if fronts[start + offset] else front + new[at + offset]
                pending = ""
    return "".join(new)


def _front(before: str, line: str) -> str:
    """The blanks at the start of a line, if a form feed among them went."""
    found = _FRONT.match(before)
    return found[0] if before != line and found is not None and "\f" in found[0] else ""
