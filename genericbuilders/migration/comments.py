"""Comments of what is rewritten: none is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import libcst as cst
import libcst.matchers as m

__all__ = ["carried", "comments_of", "is_commented"]

NodeT = TypeVar("NodeT", cst.ClassDef, cst.FunctionDef, cst.SimpleStatementLine)


def comments_of(node: cst.CSTNode) -> Sequence[cst.Comment]:
    """All comments in a node, those around it too where they are its own."""
    return [each for each in m.findall(node, m.Comment()) if isinstance(each, cst.Comment)]


def is_commented(node: cst.CSTNode) -> bool:
    """Whether a node has any comment."""
    return bool(comments_of(node))


def carried(original: cst.CSTNode, updated: NodeT) -> NodeT:
    """A statement with those comments above it that its old form had and its new one has not."""
    left = Counter(each.value for each in comments_of(updated))
    lost: list[cst.EmptyLine] = []
    for each in comments_of(original):
        left[each.value] -= 1
        if left[each.value] < 0:
            lost.append(cst.EmptyLine(comment=each))
    return updated.with_changes(leading_lines=[*updated.leading_lines, *lost]) if lost else updated
