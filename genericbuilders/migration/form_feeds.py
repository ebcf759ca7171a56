"""Form feeds before statements, which LibCST drops, or stumbles over."""

from __future__ import annotations

import ast
import re
from difflib import SequenceMatcher

__all__ = ["with_form_feeds", "without_form_feeds"]

_FRONT = re.compile(r"[ \t\f]*")
_BEFORE_CODE = re.compile(r"^[ \t\f]*\f(?=[ \t]*\S)", re.MULTILINE)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")


def without_form_feeds(text: str, tree: ast.Module) -> str:
    """A file without those before its statements; as it is where one of them is part of a string."""
    plain = _BEFORE_CODE.sub("", text)
    return plain if ast.dump(ast.parse(plain)) == ast.dump(tree) else text


def with_form_feeds(text: str, read: str, after: str) -> str:
    """Put back what is missing.

    Args:
        text: the file as it was.
        read: the same without them.
        after: what it was rewritten to. A line that is not in it any more leaves its form feed to the next one.
    """
    if text == read:
        return after
    old, new = _LINE.findall(text), _LINE.findall(after)
    given = _LINE.findall(read)
    pending = ""
    matcher = SequenceMatcher(None, given, new, autojunk=False)
    for kind, start, end, at, stop in matcher.get_opcodes():
        for offset in range(max(end - start, stop - at)):
            at_hand = start + offset < end and not (kind == "equal" and old[start + offset] == given[start + offset])
            front = _front(old[start + offset]) if at_hand else ""
            if at + offset >= stop or not new[at + offset].strip():
                pending += "\f" if front else ""
                continue
            line = new[at + offset]
            if front and kind == "equal":
                new[at + offset] = pending + front + line.lstrip(" \t\f")
            elif front or pending:
                new[at + offset] = pending + ("\f" if front else "") + line
            pending = ""
    return "".join(new)


def _front(line: str) -> str:
    """The blanks at the start of a line, if a form feed is among them."""
    found = _FRONT.match(line)
    return found[0] if found is not None and "\f" in found[0] else ""
