"""What a builder class writes around ``kv_cache_spec`` to be right, or to be left alone by a checker."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

__all__ = ["Hatches", "count_hatches"]

_SPEC = "kv_cache_spec"


@dataclass(frozen=True)
class Hatches:
    """How often each kind stands in one builder's own body, or (summed) in a set of builders.

    Attributes:
        re_annotations: ``kv_cache_spec: X`` in the class.
        asserts: ``assert isinstance(...)`` on the spec.
        isinstance_tests: other such tests.
        casts: of the spec.
        ignores: ``# type: ignore`` on a line that names the spec.
        any_hints: parameters ``kv_cache_spec`` with no hint, ``Any`` or ``object``.
    """

    re_annotations: int = 0
    asserts: int = 0
    isinstance_tests: int = 0
    casts: int = 0
    ignores: int = 0
    any_hints: int = 0

    def __add__(self, other: Hatches) -> Hatches:
        return Hatches(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    @property
    def any_at_all(self) -> bool:
        """Whether the class needs one kind or another."""
        return any(astuple(self))


def count_hatches(node: ast.ClassDef, lines: Sequence[str]) -> Hatches:
    """The hatches of one class; ``lines`` are those of its module."""
    asserts = [each for each in ast.walk(node) if isinstance(each, ast.Assert)]
    narrowing = [each for each in asserts if any(_mentions_spec(call) for call in _calls(each, "isinstance"))]
    tests = sum(_mentions_spec(call.args[0]) for call in _calls(node, "isinstance") if call.args)
    hints = [hint for each in ast.walk(node) if isinstance(each, ast.FunctionDef) for hint in _spec_hints(each)]
    return Hatches(
        re_annotations=sum(
            isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id == _SPEC
            for each in node.body
        ),
        asserts=len(narrowing),
        isinstance_tests=tests - sum(_mentions_spec(call) for each in narrowing for call in _calls(each, "isinstance")),
        casts=sum(any(_mentions_spec(each) for each in call.args) for call in _calls(node, "cast")),
        ignores=sum(_SPEC in line and "type: ignore" in line for line in lines[node.lineno - 1 : node.end_lineno]),
        any_hints=sum(hint in ("", "Any", "object") for hint in hints),
    )


def _spec_hints(function: ast.FunctionDef) -> Iterator[str]:
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        if argument.arg == _SPEC:
            yield ast.unparse(argument.annotation) if argument.annotation else ""


def _mentions_spec(node: ast.AST) -> bool:
    return any(
        (isinstance(each, ast.Name) and each.id == _SPEC) or (isinstance(each, ast.Attribute) and each.attr == _SPEC)
        for each in ast.walk(node)
    )


def _calls(node: ast.AST, name: str) -> Iterator[ast.Call]:
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == name:
            yield each
