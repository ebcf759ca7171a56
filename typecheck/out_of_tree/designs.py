"""The designs of the builder base, made by patching the class in a copy of vLLM's ``backend.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m
from typing_extensions import override

__all__ = ["BASE_CLASS", "DESIGNS", "WIDENED", "Design", "PatchError", "patch_base"]

BASE_CLASS = "AttentionMetadataBuilder"
_HOOKS = ("get_cudagraph_support", "get_varlen_cudagraph_max_query_len")


class PatchError(ValueError):
    """The base class is not what the patch was written for."""


@dataclass(frozen=True)
class Design:
    """One way to type the base.

    Attributes:
        name: what the results call it.
        spec: the annotation of ``kv_cache_spec`` in ``__init__``; ``None`` leaves the class as it is.
        hook_spec: the same in the class methods that take a spec.
        type_variable: the statement that makes ``S``; ``None`` when there is no second parameter.
        read_only: ``kv_cache_spec`` is a property.
        declared: where there is an ``S``, the attribute is declared as one, as in this library, not only assigned.
        lookup: what the base back end's ``get_builder_cls`` is said to return; ``None``: nothing, as in vLLM.
        rewrite: what is done to the builders: ``migrate`` has those with a known narrow spec name it to the base,
            ``strip`` takes their class-level re-annotations and asserts away, ``None`` leaves them.
    """

    name: str
    spec: str | None = None
    hook_spec: str | None = None
    type_variable: str | None = None
    read_only: bool = False
    declared: bool = True
    lookup: str | None = None
    rewrite: str | None = None

    @property
    def parameters(self) -> int:
        """How many type parameters the base has."""
        return 1 if self.type_variable is None else 2


def _variable(arguments: str) -> str:
    return f'S = typing_extensions.TypeVar("S", bound="KVCacheSpec"{arguments})'


_BARE = 'type["AttentionMetadataBuilder"]'
_ANY = 'type["AttentionMetadataBuilder[Any, Any]"]'
_DEFAULT = ', default="KVCacheSpec"'
WIDENED = Design("widened")
DESIGNS: tuple[Design, ...] = (
    WIDENED,
    Design("widened-stripped", rewrite="strip"),
    Design("asserting", '"AttentionSpec"', '"AttentionSpec"'),
    Design("generic", "S", "S", _variable(_DEFAULT)),
    Design("generic-assigned", "S", "S", _variable(_DEFAULT), declared=False),
    Design("generic-covariant", "S", '"KVCacheSpec"', _variable(_DEFAULT + ", covariant=True"), read_only=True),
    Design("generic-attention-default", "S", "S", _variable(', default="AttentionSpec"')),
    Design("generic-no-default", "S", "S", _variable("")),
    Design("generic-migrated", "S", "S", _variable(_DEFAULT), rewrite="migrate"),
    Design(
        "generic-covariant-migrated",
        "S",
        '"KVCacheSpec"',
        _variable(_DEFAULT + ", covariant=True"),
        read_only=True,
        rewrite="migrate",
    ),
    Design("widened-lookup", lookup=_BARE),
    Design("generic-migrated-lookup", "S", "S", _variable(_DEFAULT), lookup=_BARE, rewrite="migrate"),
    Design(
        "generic-covariant-migrated-lookup",
        "S",
        '"KVCacheSpec"',
        _variable(_DEFAULT + ", covariant=True"),
        read_only=True,
        lookup=_BARE,
        rewrite="migrate",
    ),
    Design("generic-migrated-any-lookup", "S", "S", _variable(_DEFAULT), lookup=_ANY, rewrite="migrate"),
)

_STORE = m.SimpleStatementLine(
    body=[
        m.Assign(
            targets=[m.AssignTarget(target=m.Attribute(value=m.Name("self"), attr=m.Name("kv_cache_spec")))],
            value=m.Name("kv_cache_spec"),
        )
    ]
)


def patch_base(source: str, design: Design) -> str:
    """``source`` of ``backend.py`` with the base class as ``design`` has it.

    Lines keep their numbers, except behind the class where the design adds a property.

    Raises:
        PatchError: the class, one of its parts or the type variable ``M`` is not where it is expected.
    """
    module = cst.parse_module(source)
    if design.lookup is not None:
        module = _annotate_lookup(module, design.lookup)
    patched = _patch_class(_find_class(module), design)
    body: list[cst.BaseStatement | cst.SimpleStatementLine] = [
        patched if _is_base(statement) else statement for statement in module.body
    ]
    if design.type_variable is not None:
        body = _add_type_variable(body, design.type_variable)
    return module.with_changes(body=body).code


def _is_base(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.ClassDef) and node.name.value == BASE_CLASS


def _find_class(module: cst.Module) -> cst.ClassDef:
    found = [node for node in module.body if isinstance(node, cst.ClassDef) and _is_base(node)]
    if len(found) != 1:
        raise PatchError(
            f"expected one top-level class {BASE_CLASS}, found {len(found)}; is this vLLM 0.32's backend.py?"
        )
    return found[0]


class _LookupPatch(cst.CSTTransformer):
    def __init__(self, annotation: str) -> None:
        super().__init__()
        self._annotation = cst.Annotation(annotation=cst.parse_expression(annotation))
        self.hits = 0

    @override
    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        if updated_node.name.value != "get_builder_cls" or updated_node.returns is not None:
            return updated_node
        self.hits += 1
        return updated_node.with_changes(returns=self._annotation)


def _annotate_lookup(module: cst.Module, annotation: str) -> cst.Module:
    patch = _LookupPatch(annotation)
    module = module.visit(patch)
    if patch.hits != 1:
        raise PatchError(f"expected one get_builder_cls without a return annotation, found {patch.hits}")
    return module


def _add_type_variable(
    body: Sequence[cst.BaseStatement | cst.SimpleStatementLine], statement: str
) -> list[cst.BaseStatement | cst.SimpleStatementLine]:
    made = m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(target=m.Name("M"))], value=m.Call())])
    added = cst.parse_module(f"import typing_extensions; {statement}\n").body[0]
    if not isinstance(added, cst.SimpleStatementLine):
        raise PatchError(f"{statement} is no simple statement")
    result: list[cst.BaseStatement | cst.SimpleStatementLine] = []
    hits = 0
    for node in body:
        if isinstance(node, cst.SimpleStatementLine) and m.matches(node, made):
            hits += 1
            # On M's own line, so that no line below moves.
            node = node.with_changes(body=[*node.body, *added.body])
        result.append(node)
    if hits != 1:
        raise PatchError(f"expected one top-level M = TypeVar(...), found {hits}")
    return result


def _patch_class(node: cst.ClassDef, design: Design) -> cst.ClassDef:
    if design.spec is None:
        return node
    if design.type_variable is not None:
        node = node.with_changes(bases=[_with_second_parameter(base, node) for base in node.bases])
        if not any(m.matches(base.value, m.Subscript(value=m.Name("Generic"))) for base in node.bases):
            raise PatchError(f"{BASE_CLASS} has no base Generic[...]")
    wanted = {"__init__": design.spec, **dict.fromkeys(_HOOKS, design.hook_spec)}
    seen: set[str] = set()
    statements: list[cst.BaseStatement | cst.BaseSmallStatement] = []
    for statement in node.body.body:
        if isinstance(statement, cst.FunctionDef) and statement.name.value in wanted:
            name = statement.name.value
            seen.add(name)
            statement = _annotate(statement, wanted[name], drop_cls=design.type_variable is not None)
            if name == "__init__" and design.type_variable is not None and (design.read_only or design.declared):
                store = (
                    "self._kv_cache_spec = kv_cache_spec"
                    if design.read_only
                    else "self.kv_cache_spec: S = kv_cache_spec"
                )
                statement = _store(statement, store)
        statements.append(statement)
    # The second hook is newer than the change that is studied; the first two are its subject.
    for name in ("__init__", "get_cudagraph_support"):
        if name not in seen:
            raise PatchError(f"{BASE_CLASS} has no method {name}")
    if design.read_only:
        statements.append(_property())
    return node.with_changes(body=node.body.with_changes(body=statements))


def _with_second_parameter(base: cst.Arg, node: cst.ClassDef) -> cst.Arg:
    if not isinstance(base.value, cst.Subscript) or not m.matches(base.value.value, m.Name("Generic")):
        return base
    if len(base.value.slice) != 1:
        raise PatchError(f"{node.name.value} already has {len(base.value.slice)} type parameters; expected 1")
    second = cst.SubscriptElement(slice=cst.Index(value=cst.Name("S")))
    return base.with_changes(value=base.value.with_changes(slice=[*base.value.slice, second]))


def _annotate(function: cst.FunctionDef, annotation: str | None, *, drop_cls: bool) -> cst.FunctionDef:
    if annotation is None:
        return function
    hits = 0
    parameters: list[cst.Param] = []
    for parameter in function.params.params:
        if parameter.name.value == "kv_cache_spec":
            hits += 1
            new = cst.Annotation(annotation=cst.parse_expression(annotation))
            parameter = parameter.with_changes(annotation=new)
        elif parameter.name.value == "cls" and drop_cls:
            # Under an invariant S this annotation fails every narrower override.
            parameter = parameter.with_changes(annotation=None)
        parameters.append(parameter)
    if hits != 1:
        raise PatchError(f"{BASE_CLASS}.{function.name.value} has no parameter kv_cache_spec")
    return function.with_changes(params=function.params.with_changes(params=parameters))


def _store(function: cst.FunctionDef, store: str) -> cst.FunctionDef:
    hits = 0
    statements: list[cst.BaseStatement | cst.BaseSmallStatement] = []
    for statement in function.body.body:
        if m.matches(statement, _STORE):
            hits += 1
            statement = cst.parse_statement(store)
        statements.append(statement)
    if hits != 1:
        raise PatchError(f"expected one self.kv_cache_spec = kv_cache_spec in {BASE_CLASS}.__init__, found {hits}")
    return function.with_changes(body=function.body.with_changes(body=statements))


def _property() -> cst.BaseStatement:
    made = cst.parse_statement("@property\ndef kv_cache_spec(self) -> S:\n    return self._kv_cache_spec\n")
    return made.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
