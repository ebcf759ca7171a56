"""What builders write so that a checker knows their spec: a second type argument, or everything else there is."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Spelling", "builders", "spelled"]

_SPEC = "kv_cache_spec"
_BASE = "AttentionMetadataBuilder"


@dataclass(frozen=True)
class Spelling:
    """How some builders say which spec they take.

    Attributes:
        builders: how many there are.
        by_argument: those that give the base a second type argument.
        by_more: those that re-annotate the attribute, narrow ``__init__`` or assert.
        by_ancestor: those that write nothing since a class between them and the base has.
        by_default: direct subclasses of the base that write nothing: they take what the base takes.
        lines: whole lines that are there for it alone.
        characters: characters that are there for it alone, indentation left out.
    """

    builders: int = 0
    by_argument: int = 0
    by_more: int = 0
    by_ancestor: int = 0
    by_default: int = 0
    lines: int = 0
    characters: int = 0


def spelled(sources: Iterable[str]) -> Spelling:
    """What the builders in these modules write together."""
    kinds = {"by_argument": 0, "by_more": 0, "by_ancestor": 0, "by_default": 0}
    number = lines = characters = 0
    for source in sources:
        for node in builders(source):
            number += 1
            argument = _second_argument(node, source)
            own = list(_statements(node))
            kinds[_kind(node, argument, own)] += 1
            lines += sum((each.end_lineno or each.lineno) - each.lineno + 1 for each in own)
            characters += len(argument) + sum(_size(each, source) for each in own)
    return Spelling(number, **kinds, lines=lines, characters=characters)


def builders(source: str) -> Iterator[ast.ClassDef]:
    """The subclasses of a builder in one module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and any(_base(base).endswith("Builder") for base in node.bases):
            yield node


def _kind(node: ast.ClassDef, argument: str, own: list[ast.stmt]) -> str:
    if argument:
        return "by_argument"
    if own:
        return "by_more"
    return "by_default" if any(_base(base) == _BASE for base in node.bases) else "by_ancestor"


def _base(node: ast.expr) -> str:
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _second_argument(node: ast.ClassDef, source: str) -> str:
    """With the comma before it; empty where there is none."""
    for base in node.bases:
        if isinstance(base, ast.Subscript) and isinstance(base.slice, ast.Tuple) and len(base.slice.elts) > 1:
            return f", {ast.get_source_segment(source, base.slice.elts[1])}"
    return ""


def _statements(node: ast.ClassDef) -> Iterator[ast.stmt]:
    """What would not be there if the base knew the spec."""
    for each in node.body:
        if _re_annotates(each) or (isinstance(each, ast.FunctionDef) and _only_narrows(each)):
            yield each
        else:
            yield from (inner for inner in ast.walk(each) if isinstance(inner, ast.Assert) and _mentions_spec(inner))


def _re_annotates(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.target.id == _SPEC
    )


def _only_narrows(function: ast.FunctionDef) -> bool:
    """Whether all that it does is hand on what it got, or assert and then do so and re-annotate."""
    if function.name != "__init__" or not _mentions_spec(function):
        return False
    return all(
        isinstance(each, ast.Assert | ast.AnnAssign)
        or (isinstance(each, ast.Expr) and "super().__init__" in ast.unparse(each))
        for each in function.body
    )


def _mentions_spec(node: ast.AST) -> bool:
    names = (
        each.id if isinstance(each, ast.Name) else each.attr if isinstance(each, ast.Attribute) else each.arg
        for each in ast.walk(node)
        if isinstance(each, ast.Name | ast.Attribute | ast.arg)
    )
    return _SPEC in names


def _size(node: ast.stmt, source: str) -> int:
    """To the end of the line: a comment that silences a checker is part of it."""
    lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
    return sum(len(line.strip()) for line in lines)
