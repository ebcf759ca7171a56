"""What one class says about the spec that it takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from genericbuilders.migration.bindings import Function, Names, dotted, rebinds
from genericbuilders.migration.source import Position, Source, why_it_stays
from genericbuilders.migration.spec_uses import SPEC, Cast, Check, SpecUses, fields_of, read_uses

__all__ = ["SPEC", "BaseRef", "Check", "ClassInfo", "FunctionScope", "Hint", "describe_class"]

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
        annotation: a union of dotted names, unquoted and without ``None``; ``None`` where there is none such.
        position: where.
        has_value: whether a class-level annotation also assigns.
        optional: whether it may be ``None``.
        certain: whether it is the spec's whatever its hint is: by its name, or since the base gets it first.
        stays: why a class-level annotation cannot be taken out, whatever it says.
    """

    parameter: str
    annotation: str | None
    position: Position
    has_value: bool = False
    optional: bool = False
    certain: bool = True
    stays: str | None = None

    @property
    def line(self) -> int:
        """Where."""
        return self.position[0]


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
        checks: what its methods demand of the spec.
        casts: of the spec, in its methods.
        self_fields: attributes of ``self.kv_cache_spec`` that its methods read.
        parameter_fields: those of the spec's parameter that ``__init__`` reads.
        asked: the line where it asks for the spec's type without demanding one: it may take several.
        assigned: the line that gives ``self.kv_cache_spec`` anything but the constructor's parameter.
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
    casts: tuple[Cast, ...]
    self_fields: frozenset[str]
    parameter_fields: frozenset[str]
    asked: int | None
    assigned: int | None
    hook_fields: frozenset[str]
    build_returns: str | None
    builds_batches: bool
    rebinds: bool
    methods: frozenset[str]
    decorators: tuple[str, ...]


def describe_class(
    node: ast.ClassDef,
    prefix: str,
    scope: FunctionScope | None,
    marker: str | None,
    source: Source,
    names: Names | None,
) -> ClassInfo:
    """Read one class.

    Args:
        node: its syntax.
        prefix: what stands before its name, as in ``outer.<locals>.``.
        scope: the functions around it.
        marker: the spec that a comment on its line names.
        source: its file.
        names: what its file's names mean; ``None`` if it speaks of no specs, so that methods need not be searched.
    """
    methods = {each.name: each for each in node.body if isinstance(each, Function)}
    init, hook, build = methods.get("__init__"), methods.get(_HOOK), methods.get("build")
    taken = None if init is None else _spec_parameter(init, 1, source)
    asked = None if hook is None else _spec_parameter(hook, 2, source)
    uses = SpecUses() if names is None else read_uses(node, source, names, taken.parameter if taken else None)
    in_hook = frozenset[str]()
    if hook is not None and asked is not None and names is not None:
        in_hook = fields_of(hook, asked.parameter, source, names)
    return ClassInfo(
        prefix + node.name,
        node.name,
        node.lineno,
        node.col_offset + 1,
        tuple(_base(each) for each in node.bases),
        scope,
        marker,
        _annotation(node, source),
        taken,
        init is not None and any(each.arg == "input_builder" for each in init.args.args),
        asked,
        tuple(uses.checks),
        tuple(uses.casts),
        frozenset(uses.self_fields),
        frozenset(uses.parameter_fields),
        uses.asked,
        uses.assigned,
        in_hook,
        None if build is None or build.returns is None else ast.unparse(build.returns),
        build is not None and any(each.arg in _BATCH for each in build.args.args),
        uses.rebinds,
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


def _annotation(node: ast.ClassDef, source: Source) -> Hint | None:
    for index, each in enumerate(node.body):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id == SPEC:
            text, optional = _union(each.annotation)
            stays = why_it_stays(source, node.body, index, documented=True)
            has_value = each.value is not None
            return Hint(SPEC, text, source.position(each), has_value, optional=optional, stays=stays)
    return None


def _spec_parameter(function: Function, place: int, source: Source) -> Hint | None:
    """The parameter called ``kv_cache_spec``; or that which the base gets first; or, hinted so, that at its place."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    optional = {
        each.arg
        for each, value in zip(reversed(positional), reversed(arguments.defaults), strict=False)
        if _is_none(value)
    }
    optional |= {
        each.arg for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if _is_none(value)
    }
    given = [*positional, *arguments.kwonlyargs]

    def hint(found: ast.arg, *, certain: bool) -> Hint:
        text, may_be_none = _union(found.annotation)
        where = found.lineno, found.col_offset
        return Hint(found.arg, text, where, optional=may_be_none or found.arg in optional, certain=certain)

    handed = _handed_up(function)
    for name in (SPEC, handed):
        for each in given:
            if each.arg == name:
                return hint(each, certain=True)
    if len(positional) > place and handed is None:
        text, _ = _union(positional[place].annotation)
        if text is not None and text.rpartition(".")[2].endswith(("Spec", "Specs")):
            return hint(positional[place], certain=False)
    return None


def _handed_up(function: Function) -> str | None:
    """What a constructor gives first to its base's."""
    for each in ast.walk(function):
        if (
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr == function.name == "__init__"
            and isinstance(each.func.value, ast.Call)
            and isinstance(each.func.value.func, ast.Name)
            and each.func.value.func.id == "super"
        ):
            by_name = (keyword.value for keyword in each.keywords if keyword.arg == SPEC)
            first = each.args[0] if each.args else next(by_name, None)
            if isinstance(first, ast.Name) and not rebinds(function, first.id):
                return first.id
    return None


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _union(annotation: ast.expr | None) -> tuple[str | None, bool]:
    """The classes of a hint, joined by ``|``, and whether ``None`` is one of them; no text unless all are names."""
    if annotation is None:
        return None, False
    parts = list(_members(annotation))
    named = [part for part in parts if part != "None"]
    return (" | ".join(named) if named and all(named) else None), len(named) < len(parts)


def _members(node: ast.expr) -> Iterator[str]:
    """The names of a union's members; an empty one for what is no name."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            yield from _members(ast.parse(node.value.strip(), mode="eval").body)
        except SyntaxError:
            yield ""
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _members(node.left)
        yield from _members(node.right)
    elif isinstance(node, ast.Subscript) and (kind := dotted(node.value).rpartition(".")[2]) in ("Optional", "Union"):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for each in inner:
            yield from _members(each)
        if kind == "Optional":
            yield "None"
    else:
        yield "None" if _is_none(node) else dotted(node)
