"""Which names a file or a function binds, so that a name is only taken for what it is at its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Function", "Names", "Scope", "bound_in", "dotted", "read_names", "rebinds"]

Function = ast.FunctionDef | ast.AsyncFunctionDef
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef | _Comprehension
_CAST_HOMES = ("typing", "typing_extensions")


@dataclass(frozen=True)
class Names:
    """What a file's names mean, wherever in it they are bound.

    Attributes:
        bound: names that the file binds, in whatever scope.
        casts: dotted names by which the file calls `typing.cast`.
    """

    bound: frozenset[str]
    casts: frozenset[str]

    def is_builtin(self, name: str) -> bool:
        """Whether a name is nowhere in the file anything but Python's own."""
        return name not in self.bound


def read_names(tree: ast.Module) -> Names:
    """The names of one file."""
    bound: set[str] = set()
    origins: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                head = alias.name.partition(".")[0]
                origins.setdefault(alias.asname or head, set()).add(alias.name if alias.asname else head)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                origins.setdefault(alias.asname or alias.name, set()).add(f"{node.module}.{alias.name}")
        else:
            bound.update(_binds(node))
    casts: set[str] = set()
    for name, homes in origins.items():
        if name not in bound and homes <= {f"{home}.cast" for home in _CAST_HOMES}:
            casts.add(name)
        elif name not in bound and homes <= set(_CAST_HOMES):
            casts.add(f"{name}.cast")
    return Names(frozenset(bound | set(origins)), frozenset(casts))


def bound_in(scope: Scope) -> frozenset[str]:
    """The names that a scope of its own binds; those of scopes inside it are not among them."""
    found: set[str] = set()
    if isinstance(scope, Function | ast.Lambda):
        found.update(each.arg for each in ast.walk(scope.args) if isinstance(each, ast.arg))
    for node in _own(scope):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        else:
            found.update(_binds(node))
    return frozenset(found)


def dotted(node: ast.expr) -> str:
    """The dotted name that an expression is, or an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        front = dotted(node.value)
        return f"{front}.{node.attr}" if front else ""
    return ""


def rebinds(function: Function, name: str) -> bool:
    """Whether a function gives one of its parameters another value, itself or in a function inside it."""
    if any(name in _binds(node) or _imports(node, name) for node in _own(function)):
        return True
    return any(isinstance(each, ast.Nonlocal | ast.Global) and name in each.names for each in ast.walk(function))


def _imports(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom) and any(
        (alias.asname or alias.name.partition(".")[0]) == name for alias in node.names
    )


def _binds(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler):
        if node.name is not None:
            yield node.name
    elif isinstance(node, ast.MatchMapping):
        if node.rest is not None:
            yield node.rest
    elif isinstance(node, ast.Nonlocal | ast.Global):
        yield from node.names


def _own(scope: Scope) -> Iterator[ast.AST]:
    """The nodes of a scope, without those of scopes inside it; a walrus in a comprehension belongs to it."""
    pending: list[ast.AST] = [*(scope.body if isinstance(scope, Function | ast.ClassDef) else ())]
    if isinstance(scope, ast.Lambda):
        pending.append(scope.body)
    elif isinstance(scope, _Comprehension):
        pending += [each.target for each in scope.generators]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, _Comprehension):
            pending += [each.target for each in ast.walk(node) if isinstance(each, ast.NamedExpr)]
        elif not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            pending += ast.iter_child_nodes(node)
