"""What one class says about the spec that it takes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["SPEC", "BaseRef", "Check", "ClassInfo", "FunctionScope", "Hint", "describe_class"]

SPEC = "kv_cache_spec"
_OPTIONAL = re.compile(r"(?:\w+\.)*Optional\[(.*)\]")
_HOOK = "get_cudagraph_support"
_BATCH = ("common_attn_metadata", "common_prefix_len")


@dataclass(frozen=True)
class FunctionScope:
    """The functions around a class: the names of their parameters."""

    names: frozenset[str]


@dataclass(frozen=True)
class BaseRef:
    """A base as it is written.

    Attributes:
        name: dotted, without arguments; empty if it is no name.
        arguments: its type arguments, as written.
        text: all of it, as written.
    """

    name: str
    arguments: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Hint:
    """A name that a spec comes in.

    Attributes:
        parameter: the name.
        annotation: unquoted, without ``None``; ``None`` where it has none.
        line: where.
        has_value: whether a class-level annotation also assigns.
    """

    parameter: str
    annotation: str | None
    line: int
    has_value: bool = False


@dataclass(frozen=True)
class Check:
    """An ``isinstance`` of the spec.

    Attributes:
        classes: against which classes.
        line: of its statement.
        demanded: whether nothing goes on if it fails, whatever came before.
        is_assert: whether an ``assert`` makes it.
        settled: whether the class's spec settles it: it asks for ``self.kv_cache_spec``, or for the parameter of
            ``__init__`` that nothing has bound anew.
    """

    classes: tuple[str, ...]
    line: int
    demanded: bool
    is_assert: bool
    settled: bool


@dataclass(frozen=True)
class ClassInfo:
    """One class.

    Attributes:
        qualname: within its module.
        name: its own name.
        line: of its ``class`` statement.
        column: of it, 1-based.
        bases: as written.
        scope: the functions around it; ``None`` at the module's or a class's own level.
        marker: the spec that a comment on its line names.
        annotation: the class-level annotation of ``kv_cache_spec``.
        init: the spec's parameter in its own ``__init__``.
        old_engine: whether ``__init__`` takes the old engine's ``input_builder``.
        hook: the spec's parameter in its own ``get_cudagraph_support``.
        checks: ``isinstance`` of the spec in its methods.
        fields: attributes of the spec that its methods read.
        hook_fields: those that ``get_cudagraph_support`` reads.
        build_returns: what ``build`` is annotated to return, as written.
        builds_batches: whether ``build`` takes a batch's description.
        rebinds: whether ``__init__`` assigns the spec's parameter anew.
        methods: the names of its methods.
        decorators: dotted names, without arguments, as written.
    """

    qualname: str
    name: str
    line: int
    column: int
    bases: tuple[BaseRef, ...]
    scope: FunctionScope | None
    marker: str | None
    annotation: Hint | None
    init: Hint | None
    old_engine: bool
    hook: Hint | None
    checks: tuple[Check, ...]
    fields: frozenset[str]
    hook_fields: frozenset[str]
    build_returns: str | None
    builds_batches: bool
    rebinds: bool
    methods: frozenset[str]
    decorators: tuple[str, ...]


def describe_class(
    node: ast.ClassDef, prefix: str, scope: FunctionScope | None, marker: str | None, reads_specs: bool
) -> ClassInfo:
    """Read one class.

    Args:
        node: its syntax.
        prefix: what stands before its name, as in ``outer.<locals>.``.
        scope: the functions around it.
        marker: the spec that a comment on its line names.
        reads_specs: whether its file speaks of specs at all; if not, its methods need not be searched.
    """
    methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    init, hook, build = methods.get("__init__"), methods.get(_HOOK), methods.get("build")
    taken = None if init is None else _spec_parameter(init)
    asked = None if hook is None else _spec_parameter(hook)
    searched = methods if reads_specs else {}
    names = {SPEC, *({taken.parameter} if taken else ())}
    return ClassInfo(
        prefix + node.name,
        node.name,
        node.lineno,
        node.col_offset + 1,
        tuple(_base(each) for each in node.bases),
        scope,
        marker,
        _annotation(node),
        taken,
        init is not None and any(each.arg == "input_builder" for each in init.args.args),
        asked,
        tuple(check for method in searched.values() for check in _checks(method, names)),
        frozenset(name for key, method in searched.items() if key != _HOOK for name in _fields(method, names)),
        frozenset() if hook is None or asked is None else frozenset(_fields(hook, {asked.parameter})),
        None if build is None or build.returns is None else ast.unparse(build.returns),
        build is not None and any(each.arg in _BATCH for each in build.args.args),
        init is not None and taken is not None and _assigns(init, taken.parameter),
        frozenset(methods),
        tuple(ast.unparse(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list),
    )


def _base(node: ast.expr) -> BaseRef:
    inner, arguments = node, tuple[str, ...]()
    if isinstance(node, ast.Subscript):
        inner = node.value
        given = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        arguments = tuple(ast.unparse(each) for each in given)
    text = ast.unparse(inner)
    return BaseRef(text if text.replace(".", "").replace("_", "").isalnum() else "", arguments, ast.unparse(node))


def _annotation(node: ast.ClassDef) -> Hint | None:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id == SPEC:
            return Hint(SPEC, _unquoted(each.annotation), each.lineno, each.value is not None)
    return None


def _spec_parameter(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Hint | None:
    """The parameter called ``kv_cache_spec``, or else the first that a spec's hint or the base's place makes one."""
    arguments = function.args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for each in given:
        if each.arg == SPEC:
            return Hint(SPEC, _unquoted(each.annotation), each.lineno)
    for each in given:
        text = _unquoted(each.annotation)
        if text is not None and text.rpartition(".")[2].endswith("Spec"):
            return Hint(each.arg, text, each.lineno)
    handed = _handed_up(function)
    return next((Hint(each.arg, None, each.lineno) for each in given if each.arg == handed), None)


def _handed_up(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """What a constructor gives first to its base's."""
    for each in ast.walk(function):
        if (
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr == function.name == "__init__"
            and isinstance(each.func.value, ast.Call)
            and isinstance(each.func.value.func, ast.Name)
            and each.func.value.func.id == "super"
            and each.args
            and isinstance(each.args[0], ast.Name)
        ):
            return each.args[0].id
    return None


def _assigns(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    stored = (each for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    return any(each.id == name for each in stored)


def _unquoted(annotation: ast.expr | None) -> str | None:
    if annotation is None:
        return None
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    if not isinstance(text, str):
        return None
    if (inner := _OPTIONAL.fullmatch(text.strip())) is not None:
        text = inner[1]
    return " | ".join(part for each in text.split("|") if (part := each.strip()) != "None")


def _checks(function: ast.FunctionDef | ast.AsyncFunctionDef, names: set[str]) -> Iterator[Check]:
    asserts = {id(each.test): each.lineno for each in ast.walk(function) if isinstance(each, ast.Assert)}
    # Under a condition, a check demands nothing of other cases.
    demands = {id(each.test): each.lineno for each in function.body if isinstance(each, ast.Assert)}
    demands |= {id(test): each.lineno for each in function.body if (test := _raises_unless(each)) is not None}
    constructs = function.name == "__init__"
    for each in ast.walk(function):
        if not (isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "isinstance"):
            continue
        if len(each.args) != 2 or not _is_spec(each.args[0], names):
            continue
        subject, made = each.args[0], id(each)
        settled = isinstance(subject, ast.Attribute) or (
            constructs and isinstance(subject, ast.Name) and not _assigns(function, subject.id)
        )
        line = asserts.get(made, demands.get(made, each.lineno))
        yield Check(tuple(_class_names(each.args[1])), line, made in demands, made in asserts, settled)


def _raises_unless(node: ast.AST) -> ast.expr | None:
    """What a statement ``if not ...: raise`` demands."""
    if not (isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise)):
        return None
    return node.test.operand if isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not) else None


def _class_names(node: ast.expr) -> Sequence[str]:
    if isinstance(node, ast.Tuple):
        return [ast.unparse(each) for each in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_class_names(node.left), *_class_names(node.right)]
    return [ast.unparse(node)]


def _fields(function: ast.FunctionDef | ast.AsyncFunctionDef, names: set[str]) -> Iterator[str]:
    aside = {id(inner) for each in ast.walk(function) if _is_alternative(each, names) for inner in ast.walk(each)}
    attributes = (each for each in ast.walk(function) if isinstance(each, ast.Attribute) and id(each) not in aside)
    for each in attributes:
        if isinstance(each.ctx, ast.Load) and _is_spec(each.value, names):
            yield each.attr


def _is_alternative(node: ast.AST, names: set[str]) -> bool:
    """Whether a statement or an expression is for one of several types of the spec."""
    if not isinstance(node, ast.If | ast.IfExp | ast.BoolOp):
        return False
    parts = node.values if isinstance(node, ast.BoolOp) else [node.test]
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("isinstance", "hasattr")
        and call.args
        and _is_spec(call.args[0], names)
        for part in parts
        for call in ast.walk(part)
    ) and not (isinstance(node, ast.If) and _raises_unless(node) is not None)


def _is_spec(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    return (
        isinstance(node, ast.Attribute)
        and node.attr == SPEC
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )
