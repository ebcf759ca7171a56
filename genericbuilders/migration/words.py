"""The words of a file: which names it uses, and which are free."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

__all__ = ["free_name", "is_expression"]

_WORD = re.compile(r"[^\W\d]\w*")


def free_name(tree: ast.Module, *names: str) -> str:
    """The first of ``names`` that a file does not use, or else the last with a number."""
    used = set(_identifiers(tree, names))
    numbered = (f"{names[-1]}{number}" for number in range(2, len(used) + 3))
    return next(name for name in (*names, *numbered) if name not in used)


def _identifiers(tree: ast.Module, asked: Sequence[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(text := node.value, str):
            # Strings may be quoted hints.
            yield from _WORD.findall(text) if any(name in text for name in asked) and is_expression(text) else ()


def is_expression(text: str) -> bool:
    """Whether a string may be a quoted hint or a name, and is no prose."""
    try:
        ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True
