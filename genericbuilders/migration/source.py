"""Where statements stand in a file, and which of them can be taken out without changing anything else."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

__all__ = ["Position", "Source", "why_it_stays"]

Position = tuple[int, int]
"""Line from 1, and column in characters from 0, as LibCST counts them."""


class Source:
    """The lines of a file, as Python counts them: a form feed ends none."""

    def __init__(self, text: str) -> None:
        self.lines: Sequence[str] = re.split(r"\r\n|\r|\n", text)

    def position(self, node: ast.stmt | ast.expr) -> Position:
        """Where a node starts."""
        before = self._before(node)
        # A form feed starts a line's columns anew.
        return node.lineno, len(before.rpartition("\f")[2] if not before.strip() else before)

    def start(self, line: int) -> int:
        """The column, from 1, at which what stands in a line starts."""
        text = self.lines[line - 1]
        return len(text) - len(text.lstrip()) + 1

    def mentions(self, node: ast.stmt, name: str) -> bool:
        """Whether a name stands anywhere in a statement's lines."""
        return any(name in line for line in self.lines[node.lineno - 1 : node.end_lineno])

    def is_in_header(self, body: Sequence[ast.stmt]) -> bool:
        """Whether a block stands on the line of what it belongs to, as in ``if x: return``."""
        return bool(self._before(body[0]).strip())

    def _before(self, node: ast.stmt | ast.expr) -> str:
        # Columns of `ast` are bytes of UTF-8.
        line = self.lines[node.lineno - 1]
        return line[: node.col_offset] if line.isascii() else line.encode()[: node.col_offset].decode()


def why_it_stays(source: Source, body: Sequence[ast.stmt], index: int, *, documented: bool = False) -> str | None:
    """Why a statement that says nothing new cannot go all the same; ``None``: it can.

    Args:
        source: the file.
        body: the block that it stands in.
        index: its place there.
        documented: whether a string at the start of that block is the docstring of something.
    """
    node = body[index]
    if source.is_in_header(body):
        return "it stands on one line with what it belongs to"
    if isinstance(node, ast.Assert) and node.msg is not None and _does_something(node.msg):
        return "its message calls something"
    behind = next((each for each in body[index + 1 :] if not isinstance(each, ast.Assert | ast.AnnAssign)), None)
    # An annotation's own description would be taken for that of what stands above.
    begins = all(isinstance(each, ast.Assert | ast.AnnAssign) for each in body[:index]) and documented
    described = isinstance(node, ast.AnnAssign) and index + 1 < len(body) and _is_string(body[index + 1])
    if described or (begins and behind is not None and _is_string(behind)):
        return "the string behind it would become the description of something else"
    return None


def _is_string(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _does_something(message: ast.expr) -> bool:
    return any(isinstance(each, ast.Call | ast.NamedExpr | ast.Await | ast.Yield) for each in ast.walk(message))
