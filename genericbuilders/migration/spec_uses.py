"""What the methods of a class ask and read of its spec."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from genericbuilders.migration.bindings import Function, Names, Scope, bound_in, dotted, rebinds
from genericbuilders.migration.source import Position, Source, why_it_stays

__all__ = ["SPEC", "Cast", "Check", "SpecUses", "fields_of", "read_uses"]

SPEC = "kv_cache_spec"
_NESTED = Function | ast.Lambda | ast.ClassDef | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_CAUGHT = (AssertionError, AttributeError, TypeError)


@dataclass(frozen=True)
class Check:
    """An ``assert isinstance`` of the spec, or a ``raise`` unless it is one.

    Attributes:
        classes: against which classes.
        position: of its statement.
        demanded: whether nothing goes on if it fails, whatever came before.
        is_assert: whether an ``assert`` makes it.
        of_self: whether it asks for ``self.kv_cache_spec``; if not, for the constructor's parameter.
        constructs: whether it stands in ``__init__``.
        stays: why it cannot be taken out, whatever it says.
    """

    classes: tuple[str, ...]
    position: Position
    demanded: bool
    is_assert: bool
    of_self: bool
    constructs: bool
    stays: str | None

    @property
    def line(self) -> int:
        """Of its statement."""
        return self.position[0]


@dataclass(frozen=True)
class Cast:
    """A `typing.cast` of the spec: to what, where, and whether of ``self.kv_cache_spec``."""

    said: str
    position: Position
    of_self: bool


@dataclass
class SpecUses:
    """What is found.

    Attributes:
        checks: what is demanded of the spec.
        casts: of the spec.
        self_fields: attributes of ``self.kv_cache_spec`` that are read.
        parameter_fields: those of the constructor's parameter.
        asked: the first line that asks for the spec's type without demanding one: the class may take several.
        assigned: the first line that gives ``self.kv_cache_spec`` anything but the constructor's parameter.
        rebinds: whether ``__init__`` gives its parameter another value.
    """

    checks: list[Check] = field(default_factory=list[Check])
    casts: list[Cast] = field(default_factory=list[Cast])
    self_fields: set[str] = field(default_factory=set[str])
    parameter_fields: set[str] = field(default_factory=set[str])
    asked: int | None = None
    assigned: int | None = None
    rebinds: bool = False


def read_uses(cls: ast.ClassDef, source: Source, names: Names, parameter: str | None) -> SpecUses:
    """Read the methods of one class.

    Args:
        parameter: the constructor's name for the spec.
    """
    found = SpecUses()
    for node in cls.body:
        if isinstance(node, Function):
            constructs = node.name == "__init__"
            if node.name == SPEC:
                found.assigned = found.assigned or node.lineno
            elif (constructs and parameter is not None) or source.mentions(node, SPEC):
                _Method(found, source, names, node, parameter if constructs else None).read()
        elif isinstance(node, ast.Assign) and any(dotted(each) == SPEC for each in node.targets):
            found.assigned = found.assigned or node.lineno
    return found


def fields_of(function: Function, parameter: str, source: Source, names: Names) -> frozenset[str]:
    """The attributes of one of its parameters that a function reads."""
    found = SpecUses()
    _Method(found, source, names, function, parameter).read()
    return frozenset(found.parameter_fields)


@dataclass(frozen=True)
class _Around:
    """What is true of a place.

    Attributes:
        own: whether ``self`` is the method's.
        parameter: the constructor's parameter, while nothing hides it.
        asked: names of which a question about the type is one about the spec's.
        caught: whether a failing assert is caught.
        certain: whether it is reached whenever the method is called.
    """

    own: bool
    parameter: str | None
    asked: frozenset[str]
    caught: bool = False
    certain: bool = True


class _Method:
    """Reads one method."""

    def __init__(
        self, found: SpecUses, source: Source, names: Names, function: Function, parameter: str | None
    ) -> None:
        self.found = found
        self.source = source
        self.names = names
        self.function = function
        self.parameter = parameter
        self.constructs = function.name == "__init__"

    def read(self) -> None:
        positional = (*self.function.args.posonlyargs, *self.function.args.args)
        static = any(dotted(each).endswith(("staticmethod", "classmethod")) for each in self.function.decorator_list)
        own = not static and bool(positional) and positional[0].arg == "self" and not rebinds(self.function, "self")
        kept = self.parameter
        if kept is not None and rebinds(self.function, kept):
            self.found.rebinds, kept = True, None
        around = _Around(own, kept, frozenset())
        self._block(self.function.body, replace(around, asked=self._asked_names(around)))

    def _asked_names(self, around: _Around) -> frozenset[str]:
        """The parameters called ``kv_cache_spec``, and names that the spec is given."""
        found = {self.parameter, *(each.arg for each in ast.walk(self.function.args) if isinstance(each, ast.arg))}
        found &= {self.parameter, SPEC}
        for node in ast.walk(self.function):
            if isinstance(node, ast.Assign) and self._is_spec(node.value, around):
                found.update(each.id for each in node.targets if isinstance(each, ast.Name))
            elif isinstance(node, ast.NamedExpr) and self._is_spec(node.value, around):
                found.add(node.target.id)
        return frozenset(each for each in found if each is not None)

    def _block(self, body: Sequence[ast.stmt], around: _Around, *, own: bool = True, documented: bool = True) -> None:
        """Read a block; ``own``: of the method itself, and not below a condition."""
        inner = around if own else replace(around, certain=False)
        for index, node in enumerate(body):
            self._statement(node, body, index, inner, documented)
            if inner.certain and any(isinstance(each, ast.Return) for each in ast.walk(node)):
                inner = replace(inner, certain=False)

    def _statement(
        self, node: ast.stmt, body: Sequence[ast.stmt], index: int, around: _Around, documented: bool
    ) -> None:
        if isinstance(node, ast.Assert):
            stays = why_it_stays(self.source, body, index, documented=documented)
            self._assert(node, stays, around)
        elif isinstance(node, ast.If) and (test := _raises_unless(node)) is not None and self._is_check(test, around):
            self._check(node, test, around, is_assert=False, stays=None)
            self._block([*node.body, *node.orelse], around, own=False, documented=False)
        elif isinstance(node, ast.Try):
            caught = around.caught or any(_catches(each) for each in node.handlers)
            self._block(node.body, replace(around, caught=caught), own=False, documented=False)
            for part in (*(each.body for each in node.handlers), node.orelse, node.finalbody):
                self._block(part, around, own=False, documented=False)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self._expression(item, around)
            caught = around.caught or any(_suppresses(item.context_expr) for item in node.items)
            self._block(node.body, replace(around, caught=caught), own=not caught, documented=False)
        elif isinstance(node, ast.Match):
            if self._is_asked(node.subject, around):
                self._ask(node)
            self._expression(node.subject, around)
            for case in node.cases:
                if case.guard is not None:
                    self._expression(case.guard, around)
                self._block(case.body, around, own=False, documented=False)
        else:
            if isinstance(node, ast.Assign | ast.AnnAssign) and self._is_given(node.value, around):
                # The constructor's parameter is no other value.
                if node.value is not None:
                    self._expression(node.value, around)
            else:
                self._parts(node, around)

    def _parts(self, node: ast.AST, around: _Around) -> None:
        """What is inside a node: blocks, scopes of their own, and expressions."""
        if isinstance(node, _NESTED):
            self._scope(node, around)
            return
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                self._expression(value, around)
                continue
            inside = _nodes(node, name)
            statements = [each for each in inside if isinstance(each, ast.stmt)]
            if statements:
                self._block(statements, around, own=False, documented=False)
            else:
                for each in inside:
                    self._expression(each, around)

    def _scope(self, node: Scope, around: _Around) -> None:
        bound = bound_in(node)
        parameter = None if around.parameter in bound else around.parameter
        inner = _Around(around.own and "self" not in bound, parameter, around.asked - (bound - {SPEC}), certain=False)
        if isinstance(node, Function | ast.ClassDef):
            for each in node.decorator_list:
                self._expression(each, around)
            if not isinstance(node, ast.ClassDef):
                self._expression(node.args, around)
            self._block(node.body, inner)
        else:
            for inside in ast.iter_child_nodes(node):
                self._expression(inside, inner)

    def _expression(self, node: ast.AST, around: _Around) -> None:
        if isinstance(node, ast.Call):
            self._call(node, around)
        elif isinstance(node, ast.Attribute):
            if node.attr == "__class__" and self._is_asked(node.value, around):
                self._ask(node)
            elif not isinstance(node.ctx, ast.Load) and self._is_spec(node, around):
                self.found.assigned = self.found.assigned or node.lineno
            elif isinstance(node.ctx, ast.Load) and self._is_spec(node.value, around):
                fields = self.found.parameter_fields if isinstance(node.value, ast.Name) else self.found.self_fields
                fields.add(node.attr)
                if around.caught:
                    self._ask(node)
        self._parts(node, around)

    def _call(self, node: ast.Call, around: _Around) -> None:
        name = dotted(node.func)
        if name in ("isinstance", "hasattr", "type") and node.args and self._is_asked(node.args[0], around):
            # By whatever function of that name: it is no demand.
            self._ask(node)
        elif (given := self._cast(node)) is not None and self._is_spec(given[1], around):
            said, value = given
            text = said.value if isinstance(said, ast.Constant) else ast.unparse(said)
            if isinstance(text, str):
                of_self = isinstance(value, ast.Attribute)
                self.found.casts.append(Cast(text, self.source.position(node), of_self))
        elif (
            name in ("setattr", "delattr")
            and len(node.args) > 1
            and dotted(node.args[0]) == "self"
            and isinstance(node.args[1], ast.Constant)
            and node.args[1].value == SPEC
        ):
            self.found.assigned = self.found.assigned or node.lineno

    def _assert(self, node: ast.Assert, stays: str | None, around: _Around) -> None:
        for test in _operands(node.test):
            if not self._is_check(test, around):
                self._demand_of_other(test, around)
            elif test is node.test:
                self._check(node, test, around, is_assert=True, stays=stays)
            elif around.caught:
                self._ask(node)
        if node.msg is not None:
            self._expression(node.msg, around)

    def _demand_of_other(self, test: ast.expr, around: _Around) -> None:
        """What an assert asks of a name that merely was given the spec, or is called like it, says nothing."""
        names = self.names.is_builtin("isinstance")
        if names and isinstance(test, ast.Call) and dotted(test.func) == "isinstance" and not around.caught:
            self._parts(test, around)
        else:
            self._expression(test, around)

    def _check(self, node: ast.stmt, test: ast.expr, around: _Around, *, is_assert: bool, stays: str | None) -> None:
        if around.caught:
            self._ask(node)
        if not isinstance(test, ast.Call):
            return
        self.found.checks.append(
            Check(
                tuple(_class_names(test.args[1])),
                self.source.position(node),
                around.certain and not around.caught,
                is_assert,
                isinstance(test.args[0], ast.Attribute),
                self.constructs,
                stays,
            )
        )

    def _is_given(self, value: ast.expr | None, around: _Around) -> bool:
        """Whether a value is the constructor's parameter, cast or not; ``None``: an annotation alone."""
        if value is None:
            return True
        if isinstance(value, ast.Call) and (given := self._cast(value)) is not None:
            value = given[1]
        return self.constructs and isinstance(value, ast.Name) and self._is_spec(value, around)

    def _cast(self, node: ast.Call) -> tuple[ast.expr, ast.expr] | None:
        """The two arguments of a `typing.cast`, in that order."""
        names = ("typ", "val")[len(node.args) :]
        if dotted(node.func) not in self.names.casts or names != tuple(each.arg for each in node.keywords):
            return None
        first, second = (*node.args, *(each.value for each in node.keywords))
        return first, second

    def _ask(self, node: ast.stmt | ast.expr) -> None:
        if self.found.asked is None:
            self.found.asked = node.lineno

    def _is_check(self, test: ast.expr, around: _Around) -> bool:
        return (
            isinstance(test, ast.Call)
            and dotted(test.func) == "isinstance"
            and self.names.is_builtin("isinstance")
            and len(test.args) == 2
            and self._is_spec(test.args[0], around)
        )

    def _is_spec(self, node: ast.expr, around: _Around) -> bool:
        if isinstance(node, ast.Name):
            return node.id == around.parameter
        return around.own and isinstance(node, ast.Attribute) and dotted(node) == f"self.{SPEC}"

    def _is_asked(self, node: ast.expr, around: _Around) -> bool:
        if isinstance(node, ast.Call) and dotted(node.func) == "type" and len(node.args) == 1:
            node = node.args[0]
        if isinstance(node, ast.NamedExpr):
            node = node.value
        if isinstance(node, ast.Tuple):
            return any(self._is_asked(each, around) for each in node.elts)
        return self._is_spec(node, around) or dotted(node) in {*around.asked, f"self.{SPEC}"}


def _nodes(node: ast.AST, name: str) -> list[ast.AST]:
    """The nodes in a field that is a list."""
    value: object = getattr(node, name)
    return [each for each in value if isinstance(each, ast.AST)] if _is_list(value) else []


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for each in test.values:
            yield from _operands(each)
    else:
        yield test


def _raises_unless(node: ast.If) -> ast.expr | None:
    """What a statement ``if not ...: raise`` demands."""
    if not isinstance(node.body[-1], ast.Raise) or not isinstance(node.test, ast.UnaryOp):
        return None
    simple = all(isinstance(each, ast.Assign | ast.Expr | ast.Raise) for each in node.body)
    return node.test.operand if simple and isinstance(node.test.op, ast.Not) else None


def _catches(handler: ast.ExceptHandler) -> bool:
    """Whether a handler may catch what a spec of another type raises."""
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    for each in caught:
        known: object = getattr(builtins, dotted(each), None) if dotted(each) else None
        if not isinstance(known, type) or any(issubclass(kind, known) for kind in _CAUGHT):
            return True
    return False


def _suppresses(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in ("suppress", "raises")


def _class_names(node: ast.expr) -> Sequence[str]:
    if isinstance(node, ast.Tuple):
        return [name for each in node.elts for name in _class_names(each)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_class_names(node.left), *_class_names(node.right)]
    return [ast.unparse(node)]
