"""Says of a line in a tree what kind of place it is: a builder's hook, its constructor, a call site..."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HOOKS", "KINDS", "Place", "Places"]

HOOKS = ("get_cudagraph_support", "get_varlen_cudagraph_max_query_len")
# The base and what is beside it; parts of a builder; a back end naming its builder; whatever holds or calls builders.
KINDS = (
    "base",
    "class line",
    "re-annotation",
    "constructor",
    "hook override",
    "method",
    "class body",
    "get_builder_cls",
    "call site",
)
_BASE_FILE = "vllm/v1/attention/backend.py"


@dataclass(frozen=True)
class Place:
    """Where a line is.

    Attributes:
        scope: the qualified name of the innermost class or function.
        kind: one of `KINDS`.
        builder: ``path:name`` of the builder class around it, if any.
    """

    scope: str
    kind: str
    builder: str | None = None


@dataclass(frozen=True)
class _Scope:
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    names: tuple[str, ...]

    def holds(self, line: int) -> bool:
        first = min([self.node.lineno, *(each.lineno for each in self.node.decorator_list)])
        return first <= line <= (self.node.end_lineno or self.node.lineno)


class Places:
    """Finds the places of lines in one tree; ``builder_names`` are the builder classes of each file."""

    def __init__(self, root: Path, builder_names: Mapping[str, frozenset[str]]) -> None:
        self._root = root
        self._builder_names = builder_names
        self._scopes: dict[str, list[_Scope]] = {}

    def of(self, path: str, line: int) -> Place:
        """The place of a line."""
        if path not in self._scopes:
            syntax = ast.parse((self._root / path).read_text(encoding="utf-8", errors="replace"))
            self._scopes[path] = list(_scopes(syntax, ()))
        around = sorted((each for each in self._scopes[path] if each.holds(line)), key=lambda each: len(each.names))
        scope = ".".join(around[-1].names) if around else "<module>"
        if path == _BASE_FILE:
            return Place(scope, "base")
        names = self._builder_names.get(path, frozenset[str]())
        inside = [
            index
            for index, each in enumerate(around)
            if isinstance(each.node, ast.ClassDef) and each.names[-1] in names
        ]
        if inside:
            index = inside[-1]
            return Place(scope, _part(around[index:], line), f"{path}:{around[index].names[-1]}")
        makes = any(each.names[-1] == "get_builder_cls" for each in around)
        return Place(scope, "get_builder_cls" if makes else "call site")


def _part(around: list[_Scope], line: int) -> str:
    owner = around[0].node
    functions = [each.node.name for each in around[1:] if not isinstance(each.node, ast.ClassDef)]
    if functions:
        if functions[0] in HOOKS:
            return "hook override"
        return "constructor" if functions[0] == "__init__" else "method"
    if line < owner.body[0].lineno and line >= owner.lineno:
        return "class line"
    for each in owner.body:
        if isinstance(each, ast.AnnAssign) and each.lineno <= line <= (each.end_lineno or each.lineno):
            return "re-annotation" if ast.unparse(each.target) == "kv_cache_spec" else "class body"
    return "class body"


def _scopes(node: ast.AST, names: tuple[str, ...]) -> Iterable[_Scope]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = (*names, child.name)
            yield _Scope(child, inner)
            yield from _scopes(child, inner)
        else:
            yield from _scopes(child, names)
