"""Rewrites builders that say a narrow spec to ``AttentionMetadataBuilder[M, X]``, line for line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from typecheck.out_of_tree.inventory import Builder

__all__ = ["Migrated", "migrate_file", "strip_file"]

_SPEC = "kv_cache_spec"


@dataclass(frozen=True)
class Migrated:
    """One rewritten file.

    Attributes:
        bases: builders that now name their spec to their base.
        re_annotations: class-level annotations that this made needless and that are gone.
        asserts: likewise ``assert isinstance(kv_cache_spec, X)``.
    """

    code: str
    bases: int
    re_annotations: int
    asserts: int


def migrate_file(source: str, builders: Sequence[Builder]) -> Migrated:
    """``source`` with each of its direct ``builders`` that says a narrow spec rewritten; lines keep their numbers.

    Raises:
        ValueError: a builder that is to be rewritten is not at the line where it was counted.
    """
    return _rewrite(source, [each for each in builders if each.direct and each.narrow], name_spec=True)


def strip_file(source: str, builders: Sequence[Builder]) -> Migrated:
    """``source`` without its builders' class-level re-annotations and asserts; lines keep their numbers.

    Raises:
        ValueError: a builder that is to be rewritten is not at the line where it was counted.
    """
    chosen = [each for each in builders if each.hatches.re_annotations or each.hatches.asserts]
    return _rewrite(source, chosen, name_spec=False)


def _rewrite(source: str, builders: Sequence[Builder], *, name_spec: bool) -> Migrated:
    wanted = {builder.line: builder for builder in builders}
    if not wanted:
        return Migrated(source, 0, 0, 0)
    wrapper = MetadataWrapper(cst.parse_module(source))
    migrator = _Migrator(wanted, name_spec=name_spec)
    module = wrapper.visit(migrator)
    if len(migrator.done) != len(wanted):
        left = sorted(builder.name for line, builder in wanted.items() if line not in migrator.done)
        raise ValueError(f"these builders were not found where they were counted: {', '.join(left)}")
    if migrator.needs_any:
        module = _import_any(module)
    return Migrated(module.code, len(migrator.done) if name_spec else 0, migrator.re_annotations, migrator.asserts)


class _Migrator(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, wanted: Mapping[int, Builder], *, name_spec: bool) -> None:
        super().__init__()
        self._wanted = wanted
        self._name_spec = name_spec
        # The classes around the node, innermost last, and for each the functions between it and the node.
        self._classes: list[Builder | None] = []
        self._functions: list[int] = [0]
        self.done: set[int] = set()
        self.re_annotations = 0
        self.asserts = 0
        self.needs_any = False

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._classes.append(self._wanted.get(self._line(node.name)))
        self._functions.append(0)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self._functions.pop()
        builder = self._classes.pop()
        if builder is None:
            return updated_node
        self.done.add(builder.line)
        if not self._name_spec or builder.own_spec is None:
            return updated_node
        spec = builder.own_spec
        return updated_node.with_changes(bases=[self._base(base, builder, spec) for base in updated_node.bases])

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._functions[-1] += 1

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self._functions[-1] -= 1
        return updated_node

    def leave_AnnAssign(self, original_node: cst.AnnAssign, updated_node: cst.AnnAssign) -> cst.AnnAssign | cst.Pass:
        builder = self._classes[-1] if self._classes else None
        if builder is None or self._functions[-1] or not m.matches(updated_node.target, m.Name(_SPEC)):
            return updated_node
        self.re_annotations += 1
        return cst.Pass()  # so that no line moves

    def leave_Assert(self, original_node: cst.Assert, updated_node: cst.Assert) -> cst.Assert | cst.Pass:
        builder = self._classes[-1] if self._classes else None
        if builder is None or self._range(original_node).start.line != self._range(original_node).end.line:
            return updated_node
        subject = m.Name(_SPEC) | m.Attribute(value=m.Name("self"), attr=m.Name(_SPEC))
        # With the spec named to the base, only an assert of that spec has become needless.
        spec = m.Name(builder.own_spec or "") if self._name_spec else m.DoNotCare()
        call = m.Call(func=m.Name("isinstance"), args=[m.Arg(value=subject), m.Arg(value=spec)])
        if not m.matches(updated_node.test, call):
            return updated_node
        self.asserts += 1
        return cst.Pass()

    def _base(self, base: cst.Arg, builder: Builder, spec: str) -> cst.Arg:
        # A string where the file imports the spec for checkers only costs nothing elsewhere.
        second = cst.SubscriptElement(slice=cst.Index(value=cst.SimpleString(f'"{spec}"')))
        value = base.value
        given = list(value.slice) if isinstance(value, cst.Subscript) else []
        plain = value.value if isinstance(value, cst.Subscript) else value
        if cst.Module([]).code_for_node(plain) != builder.base:
            return base
        if not given:
            self.needs_any = True
            given = [cst.SubscriptElement(slice=cst.Index(value=cst.Name("Any")))]
        return base.with_changes(value=cst.Subscript(value=plain, slice=[*given, second]))

    def _line(self, node: cst.CSTNode) -> int:
        return self._range(node).start.line

    def _range(self, node: cst.CSTNode) -> CodeRange:
        found = self.get_metadata(PositionProvider, node)
        if not isinstance(found, CodeRange):
            raise TypeError(f"LibCST gives a {type(node).__name__} no position")
        return found


def _import_any(module: cst.Module) -> cst.Module:
    any_name = m.ImportAlias(name=m.Name("Any"), asname=None)
    has_any = m.ImportFrom(module=m.Name("typing"), names=[m.ZeroOrMore(), any_name, m.ZeroOrMore()])
    statements = [node for node in module.body if isinstance(node, cst.SimpleStatementLine)]
    if any(m.findall(statement, has_any) for statement in statements):
        return module
    future = m.SimpleStatementLine(body=[m.ImportFrom(module=m.Name("__future__"))])
    imports = m.SimpleStatementLine(body=[m.Import() | m.ImportFrom(), m.ZeroOrMore()])
    home = next((each for each in statements if m.matches(each, imports) and not m.matches(each, future)), None)
    if home is None:
        raise ValueError("no top-level import to import Any beside")
    # On a line that is there, so that none moves.
    added = cst.ImportFrom(module=cst.Name("typing"), names=[cst.ImportAlias(name=cst.Name("Any"))])
    body = [home.with_changes(body=[*home.body, added]) if each is home else each for each in module.body]
    return module.with_changes(body=body)
