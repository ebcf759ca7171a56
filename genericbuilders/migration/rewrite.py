"""Carries out the plans for the classes of one file, and keeps all that they do not name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst
import libcst.matchers as m
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from typing_extensions import override

from genericbuilders.migration.comments import carried, comments_of, is_commented
from genericbuilders.migration.plan import BASE_NAME, ClassPlan
from genericbuilders.migration.source import Position

__all__ = ["Rewriting", "rewrite_classes"]

SPEC = "kv_cache_spec"


@dataclass
class Rewriting:
    """What a rewrite did, for the imports that follow from it.

    Attributes:
        module: the new file.
        unused: names whose uses were taken out; they may have no other.
    """

    module: cst.Module
    unused: set[str] = field(default_factory=set[str])


def rewrite_classes(
    wrapper: MetadataWrapper,
    plans: Sequence[ClassPlan],
    getters: Mapping[int, str],
    new_names: Mapping[str, str],
    typed_lookups: Collection[Position],
    lookups: Mapping[Position, str],
) -> Rewriting:
    """Carry out ``plans``.

    Args:
        wrapper: the file.
        plans: of its classes, told apart by the line of their names.
        getters: by line, the new return annotation of a ``get_builder_cls``.
        new_names: by the file's name for vLLM's base, its name for the new one.
        typed_lookups: where asserts stand that a typed look-up made needless.
        lookups: by place, the new value of an assignment that becomes such a look-up.
    """
    by_line = {plan.cls.line: plan for plan in plans}
    rewriter = _Rewriter(by_line, getters, new_names, typed_lookups, lookups)
    module = wrapper.visit(rewriter)
    return Rewriting(module, rewriter.unused)


class _Rewriter(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(
        self,
        plans: Mapping[int, ClassPlan],
        getters: Mapping[int, str],
        new_names: Mapping[str, str],
        typed_lookups: Collection[Position],
        lookups: Mapping[Position, str],
    ) -> None:
        super().__init__()
        self._plans = plans
        self._getters = getters
        self._new_names = new_names
        # The classes around a node, and the functions between it and the innermost one.
        self._classes: list[ClassPlan | None] = [None]
        self._functions: list[list[cst.FunctionDef]] = [[]]
        self._gone: set[cst.BaseStatement] = set()
        self._typed_lookups = typed_lookups
        self._lookups = lookups
        self.unused: set[str] = set()

    @override
    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._classes.append(self._plans.get(self._line(node.name)))
        self._functions.append([])

    @override
    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self._functions.pop()
        plan = self._classes.pop()
        if plan is None:
            return updated_node
        if plan.base_arguments is not None:
            bases = list(updated_node.bases)
            bases[plan.base_index] = self._base(bases[plan.base_index], plan)
            updated_node = updated_node.with_changes(bases=bases)
        if plan.add_annotation is not None:
            updated_node = updated_node.with_changes(body=_annotated(updated_node.body, plan.add_annotation))
        return carried(original_node, updated_node)

    @override
    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._functions[-1].append(node)

    @override
    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self._functions[-1].pop()
        new = self._getters.get(self._line(original_node.name))
        if new is None:
            return updated_node if self._classes[-1] is None else carried(original_node, updated_node)
        if updated_node.returns is not None:
            self._forget(updated_node.returns)
            returns = updated_node.returns.with_changes(annotation=cst.parse_expression(new))
        else:
            returns = cst.Annotation(cst.parse_expression(new))
        return carried(original_node, updated_node.with_changes(returns=returns))

    @override
    def leave_Param(self, original_node: cst.Param, updated_node: cst.Param) -> cst.Param:
        plan, functions = self._classes[-1], self._functions[-1]
        if plan is None or len(functions) != 1 or updated_node.annotation is None:
            return updated_node
        function, name = functions[0].name.value, updated_node.name.value
        hint: str | None = None
        if function == "__init__" and plan.cls.init is not None and name == plan.cls.init.parameter:
            hint = plan.init_hint
        elif function == "get_cudagraph_support" and plan.cls.hook is not None and name == plan.cls.hook.parameter:
            hint = plan.hook_hint
        elif plan.new_root and name == "cls" and BASE_NAME in _code(updated_node.annotation.annotation):
            # With two parameters the annotation would refuse every narrower class.
            return updated_node.with_changes(annotation=None)
        if hint is None:
            return updated_node
        self._forget(updated_node.annotation)
        return updated_node.with_changes(
            annotation=updated_node.annotation.with_changes(annotation=cst.parse_expression(hint))
        )

    @override
    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        plan = self._classes[-1]
        if plan is None or not plan.casts or self._position(original_node) not in plan.casts:
            return updated_node
        if is_commented(updated_node):
            return updated_node
        self._forget(updated_node.func)
        return updated_node.args[1].value

    @override
    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        new = self._lookups.get(self._position(original_node)) if self._lookups else None
        return updated_node if new is None else updated_node.with_changes(value=cst.parse_expression(new))

    @override
    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine:
        kept = [
            after
            for before, after in zip(original_node.body, updated_node.body, strict=True)
            if not self._is_needless(before)
        ]
        if len(kept) == len(updated_node.body):
            return carried(original_node, updated_node) if self._lookups else updated_node
        gone = [each for each in updated_node.body if each not in kept]
        inside = [cst.EmptyLine(comment=comment) for each in gone for comment in comments_of(each)]
        for each in gone:
            self._forget(each)
        updated_node = updated_node.with_changes(leading_lines=[*updated_node.leading_lines, *inside])
        if not kept:
            self._gone.add(original_node)
            return updated_node
        kept[-1] = kept[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(body=kept)

    @override
    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        if not any(each in self._gone for each in original_node.body):
            return updated_node
        kept: list[cst.BaseStatement] = []
        # What stood above a statement that went: its comments stay, and a blank line where there was one.
        above: list[cst.EmptyLine] = []
        first = False
        for before, after in zip(original_node.body, updated_node.body, strict=True):
            if before in self._gone and isinstance(after, cst.SimpleStatementLine):
                above += after.leading_lines
                if after.trailing_whitespace.comment is not None:
                    above.append(cst.EmptyLine(comment=after.trailing_whitespace.comment))
                first = first or not kept
            elif (above or first) and isinstance(after, cst.SimpleStatementLine | cst.BaseCompoundStatement):
                commented = any(line.comment is not None for line in above)
                own = list(after.leading_lines)
                lines = [*above, *own] if commented else own or above
                kept.append(after.with_changes(leading_lines=_without_blanks(lines) if first and not kept else lines))
                above, first = [], False
            else:
                kept.append(after)
        comments = [line for line in above if line.comment is not None]
        if not kept:
            kept.append(cst.SimpleStatementLine([cst.Pass()], leading_lines=comments))
            comments = []
        footer = [*comments, *updated_node.footer]
        return updated_node.with_changes(body=kept, footer=footer)

    def _is_needless(self, statement: cst.BaseSmallStatement) -> bool:
        plan = self._classes[-1]
        if isinstance(statement, cst.Assert):
            position = self._position(statement) if self._typed_lookups or plan is not None else (0, 0)
            return position in self._typed_lookups or (plan is not None and position in plan.needless)
        if plan is None or not plan.drop_annotation or not isinstance(statement, cst.AnnAssign):
            return False
        annotation = plan.cls.annotation
        return annotation is not None and self._position(statement) == annotation.position

    def _base(self, base: cst.Arg, plan: ClassPlan) -> cst.Arg:
        arguments = plan.base_arguments or ()
        value = base.value
        plain = value.value if isinstance(value, cst.Subscript) else value
        if plan.new_root:
            plain = cst.Name(self._new_names[plan.root_name])
        elements = [cst.SubscriptElement(cst.Index(cst.parse_expression(each))) for each in arguments]
        if isinstance(value, cst.Subscript):
            # The arguments that were there keep their form, quotes and all.
            count = min(len(value.slice), len(arguments) - 1)
            elements[:count] = [
                each if is_commented(each) else each.with_changes(comma=cst.MaybeSentinel.DEFAULT)
                for each in value.slice[:count]
            ]
            return base.with_changes(value=value.with_changes(value=plain, slice=elements))
        return base.with_changes(value=cst.Subscript(value=plain, slice=elements))

    def _forget(self, node: cst.CSTNode) -> None:
        self.unused |= {each.value for each in m.findall(node, m.Name()) if isinstance(each, cst.Name)}
        for each in m.findall(node, m.SimpleString()):
            if isinstance(each, cst.SimpleString) and isinstance(text := each.evaluated_value, str):
                self.unused |= {part.strip() for part in text.split("|")}

    def _line(self, node: cst.CSTNode) -> int:
        return self._position(node)[0]

    def _position(self, node: cst.CSTNode) -> Position:
        found = self.get_metadata(PositionProvider, node)
        if not isinstance(found, CodeRange):
            raise TypeError(f"LibCST gives a {type(node).__name__} no position")
        return found.start.line, found.start.column


def _without_blanks(lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """Without the blank lines at the front."""
    start = next((index for index, line in enumerate(lines) if line.comment is not None), len(lines))
    return list(lines[start:])


def _annotated(body: cst.BaseSuite, annotation: str) -> cst.BaseSuite:
    """The body of a class with ``kv_cache_spec: annotation`` behind its docstring."""
    line = cst.SimpleStatementLine(
        [cst.AnnAssign(cst.Name(SPEC), cst.Annotation(cst.parse_expression(annotation)), value=None)]
    )
    if isinstance(body, cst.SimpleStatementSuite):
        kept = [
            cst.SimpleStatementLine([each.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
            for each in body.body
            if not isinstance(each, cst.Pass)
        ]
        return cst.IndentedBlock(
            [*kept[: _documented(kept)], line, *kept[_documented(kept) :]], body.trailing_whitespace
        )
    if not isinstance(body, cst.IndentedBlock):
        return body
    ended = [each.trailing_whitespace.newline for each in body.body if isinstance(each, cst.SimpleStatementLine)]
    newline = next((each for each in (body.header.newline, *ended) if each.value is not None), cst.Newline())
    line = line.with_changes(trailing_whitespace=cst.TrailingWhitespace(newline=newline))
    needless = m.SimpleStatementLine(body=[m.Pass()])
    statements = [each for each in body.body if is_commented(each) or not m.matches(each, needless)]
    first = _documented(statements)
    return body.with_changes(body=[*statements[:first], line, *statements[first:]])


def _documented(body: Sequence[cst.BaseStatement]) -> int:
    """How many statements a docstring takes: one, or none."""
    docstring = m.SimpleStatementLine(body=[m.Expr(value=m.SimpleString() | m.ConcatenatedString())])
    return 1 if body and m.matches(body[0], docstring) else 0


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)
