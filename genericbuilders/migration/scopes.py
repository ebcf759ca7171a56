"""Which names are bound when Python comes to a class, and to what, read from one file's syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from genericbuilders.migration.bindings import Function, bound_in, dotted, rebinds
from genericbuilders.migration.modules import absolute_module

__all__ = ["Bound", "Kind", "ModuleScopes", "Place", "read_scopes"]

Scope = dict[str, "Bound"]
_ENDS = ast.Raise | ast.Return | ast.Continue | ast.Break


class Kind(Enum):
    """What a name stands for."""

    CLASS = "a class"
    IMPORT = "what is imported"
    TYPE_VARIABLE = "a type variable"
    OTHER = "a value"


@dataclass(frozen=True)
class Bound:
    """What a name is bound to.

    Attributes:
        kind: what it stands for.
        origins: where it may be imported from, dotted.
    """

    kind: Kind
    origins: tuple[str, ...] = ()

    @property
    def may_be_class(self) -> bool:
        """Whether nothing tells that it is no class."""
        return self.kind in (Kind.CLASS, Kind.IMPORT)


@dataclass(frozen=True)
class Place:
    """What is bound for certain when Python comes to a class statement.

    Attributes:
        bases: for what its bases say.
        body: for what its body says, which sees no names of a class around it.
        hidden: names of the functions around it, which hide the module's.
        parameters: how many type parameters its own statement declares, in brackets behind its name.
    """

    bases: Mapping[str, Bound]
    body: Mapping[str, Bound]
    hidden: frozenset[str]
    parameters: int


@dataclass(frozen=True)
class ModuleScopes:
    """One file's names.

    Attributes:
        places: by the line of a class statement.
        anywhere: what the module's own level binds, under whatever condition and wherever it stands.
    """

    places: Mapping[int, Place]
    anywhere: Mapping[str, Sequence[Bound]]

    def is_of_module(self, name: str) -> bool:
        """Whether the module's own level binds ``name``, at some time."""
        return name in self.anywhere


def read_scopes(tree: ast.Module, name: str, is_package: bool) -> ModuleScopes:
    """Read the file ``tree`` of the module called ``name``."""
    reader = _Reader(name, is_package)
    reader.read(tree.body, _Level({}, None, frozenset(), at_module=True))
    return ModuleScopes(reader.places, reader.anywhere)


@dataclass
class _Level:
    """Where statements stand.

    Attributes:
        bound: what is bound so far.
        around: what functions in it see, if that is not ``bound``: in a class.
        hidden: names of the functions around it.
        at_module: whether names are bound for the module.
    """

    bound: Scope
    around: Scope | None
    hidden: frozenset[str]
    at_module: bool = False

    def branch(self) -> _Level:
        return _Level(dict(self.bound), self.around, self.hidden, self.at_module)


@dataclass
class _Reader:
    module: str
    is_package: bool
    places: dict[int, Place] = field(default_factory=dict[int, Place])
    anywhere: dict[str, list[Bound]] = field(default_factory=dict[str, "list[Bound]"])

    def read(self, body: Iterable[ast.stmt], level: _Level) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                self._class(node, level)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._bind(level, node.name, Bound(Kind.OTHER))
                self._function(node, level)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for local, origin in self._imported(node):
                    self._bind(level, local, Bound(Kind.IMPORT, (origin,)))
            elif isinstance(node, ast.Delete):
                for name in _stored(node):
                    level.bound.pop(name, None)
            elif not self._compound(node, level):
                value = _value(node, level.bound)
                for name in _stored(node):
                    self._bind(level, name, value)

    def _bind(self, level: _Level, name: str, bound: Bound) -> None:
        level.bound[name] = bound
        if level.at_module:
            self.anywhere.setdefault(name, []).append(bound)

    def _class(self, node: ast.ClassDef, level: _Level) -> None:
        around = level.bound if level.around is None else level.around
        parameters: Sequence[object] = getattr(node, "type_params", ())
        self.places[node.lineno] = Place(dict(level.bound), dict(around), level.hidden, len(parameters))
        self.read(node.body, _Level(dict(around), dict(around), level.hidden))
        self._bind(level, node.name, Bound(Kind.CLASS))

    def _function(self, node: Function, level: _Level) -> None:
        around = level.bound if level.around is None else level.around
        local = bound_in(node)
        bound = {name: each for name, each in around.items() if name not in local}
        given = (each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg))
        bound |= {name: Bound(Kind.OTHER) for name in given if not rebinds(node, name)}
        self.read(node.body, _Level(bound, None, level.hidden | local))

    def _compound(self, node: ast.stmt, level: _Level) -> bool:
        """Read a statement that has others inside; whether it is one."""
        if isinstance(node, ast.If):
            checked = _checked(node.test)
            paths = [(node.body, checked is not True), (node.orelse, checked is not False)]
            self._branches(level, paths, may_skip=False)
        elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
            tried = level.branch()
            handlers: Sequence[ast.ExceptHandler] = getattr(node, "handlers", ())
            self._branches(level, [(each.body, True) for each in handlers], may_skip=False, first=tried, node=node)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for name in _stored(*(each.optional_vars for each in node.items)):
                self._bind(level, name, Bound(Kind.OTHER))
            self.read(node.body, level)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            inner = level.branch()
            for name in () if isinstance(node, ast.While) else _stored(node.target):
                self._bind(inner, name, Bound(Kind.OTHER))
            self.read(node.body, inner)
            level.bound = _both(level.bound, inner.bound)
            self._branches(level, [(node.orelse, True)], may_skip=True)
        elif isinstance(node, ast.Match):
            self._branches(level, [(each.body, True) for each in node.cases], may_skip=True)
        else:
            return False
        return True

    def _branches(
        self,
        level: _Level,
        paths: Sequence[tuple[Sequence[ast.stmt], bool]],
        *,
        may_skip: bool,
        first: _Level | None = None,
        node: ast.stmt | None = None,
    ) -> None:
        """Read alternatives; what is bound behind them is what all that may be taken, and go on, bind."""
        ends: list[Scope] = [level.bound] if may_skip else []
        before = dict(level.bound)
        if first is not None and node is not None:
            self.read(getattr(node, "body", ()), first)
            self.read(getattr(node, "orelse", ()), first)
            ends.append(first.bound)
        for body, taken in paths:
            inner = _Level(dict(before), level.around, level.hidden, level.at_module)
            self.read(body, inner)
            if taken and not (body and isinstance(body[-1], _ENDS)):
                ends.append(inner.bound)
        after = ends[0] if ends else before
        for each in ends[1:]:
            after = _both(after, each)
        level.bound = dict(after)
        if node is not None:
            self.read(getattr(node, "finalbody", ()), level)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                yield local, alias.name if alias.asname else local
            return
        module = absolute_module(self.module, self.is_package, node)
        for alias in node.names:
            if alias.name != "*":
                yield alias.asname or alias.name, f"{module}.{alias.name}"


def _both(one: Mapping[str, Bound], other: Mapping[str, Bound]) -> Scope:
    return {name: _either(bound, other[name]) for name, bound in one.items() if name in other}


def _either(one: Bound, other: Bound) -> Bound:
    if one == other:
        return one
    if one.may_be_class and other.may_be_class:
        return Bound(Kind.IMPORT, tuple(dict.fromkeys((*one.origins, *other.origins))))
    return Bound(Kind.OTHER)


def _checked(test: ast.expr) -> bool | None:
    """Whether only checkers see what a condition guards; ``False`` if only a run does, ``None`` if neither is known."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _checked(test.operand)
        return None if inner is None else not inner
    return True if dotted(test).rpartition(".")[2] == "TYPE_CHECKING" else None


def _value(node: ast.stmt, bound: Mapping[str, Bound]) -> Bound:
    """What an assignment gives its names."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if isinstance(value, ast.Call) and dotted(value.func).rpartition(".")[2] == "TypeVar":
        return Bound(Kind.TYPE_VARIABLE)
    if isinstance(value, ast.Name | ast.Attribute) and (text := dotted(value)):
        head, _, rest = text.partition(".")
        found = bound.get(head)
        if found is not None and rest and found.may_be_class:
            return Bound(Kind.IMPORT, tuple(f"{origin}.{rest}" for origin in found.origins))
        if found is not None and not rest:
            return found
    return Bound(Kind.OTHER)


def _stored(*nodes: ast.AST | None) -> Iterator[str]:
    """The names that are bound, or deleted, in a simple statement or a target."""
    for node in nodes:
        for each in () if node is None else ast.walk(node):
            if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
                yield each.id
