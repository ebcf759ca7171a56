"""Imports after a rewrite: what is needed beside what was there, and nothing that lost its last use."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import libcst as cst
import libcst.matchers as m
from typing_extensions import override

from genericbuilders.migration.comments import carried, is_commented
from genericbuilders.migration.plan import BASE_MODULE, BASE_NAME

__all__ = ["rewrite_imports"]


def rewrite_imports(
    module: cst.Module,
    roots: Mapping[str, str],
    replaced: Collection[str],
    added: Collection[tuple[str, str]],
    unused: Collection[str],
    moved: Collection[str] = (),
) -> cst.Module:
    """Add, replace and drop imports.

    Args:
        module: the rewritten file.
        roots: by the first part of the file's name for vLLM's base, the name of the new base; imported beside it.
        replaced: those of them that nothing else uses, so that the old import goes.
        added: modules and names to import.
        unused: names that lost a use; an import whose name has no use left goes.
        moved: names that only checkers imported, and that ``added`` now imports for all.
    """
    if moved:
        module = module.visit(_Mover(moved))
    editor = _Editor(roots, replaced, added)
    edited = module.visit(editor)
    if not editor.placed:
        place = _place(edited.body)
        before = edited.body[place - 1] if place else None
        newline = before.trailing_whitespace.newline if isinstance(before, cst.SimpleStatementLine) else cst.Newline()
        lines = editor.lines(next(iter(roots.values()), None), newline)
        edited = edited.with_changes(body=[*edited.body[:place], *lines, *edited.body[place:]])
    gone = {name for name in unused if name.isidentifier() and not _used(edited, name)}
    return edited.visit(_Remover(gone)) if gone else edited


class _Editor(cst.CSTTransformer):
    """Puts new imports behind the one that brought vLLM's base, or at its place."""

    def __init__(self, roots: Mapping[str, str], replaced: Collection[str], added: Collection[tuple[str, str]]) -> None:
        super().__init__()
        self._roots = roots
        self._replaced = replaced
        self._added = sorted(added)
        self.placed = not (roots or added)

    @override
    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        if self.placed or len(updated_node.body) != 1:
            return updated_node
        statement = updated_node.body[0]
        if not isinstance(statement, cst.Import | cst.ImportFrom) or isinstance(statement.names, cst.ImportStar):
            return updated_node
        brought = {_local(alias) for alias in statement.names}
        here = [name for name in self._roots if name in brought]
        if self._roots and not here:
            return updated_node
        if not self._roots and not _is_vllm(statement):
            return updated_node
        self.placed = True
        newline = updated_node.trailing_whitespace.newline
        lines = self.lines(self._roots[here[0]] if here else None, newline)
        if not here or here[0] not in self._replaced or isinstance(statement, cst.Import):
            return cst.FlattenSentinel([updated_node, *lines])
        left = _without(statement.names, {here[0]})
        if left:
            kept = updated_node.with_changes(body=[statement.with_changes(names=left)])
            return cst.FlattenSentinel([carried(original_node, kept), *lines])
        # The first new import stands where the old one stood, with its comments.
        first = lines[0].with_changes(
            leading_lines=updated_node.leading_lines, trailing_whitespace=updated_node.trailing_whitespace
        )
        return cst.FlattenSentinel([carried(original_node, first), *lines[1:]])

    def lines(self, new_base: str | None, newline: cst.Newline) -> list[cst.SimpleStatementLine]:
        """The import statements to put in."""
        wanted: dict[str, list[str]] = {}
        if new_base is not None:
            wanted[BASE_MODULE] = [BASE_NAME if new_base == BASE_NAME else f"{BASE_NAME} as {new_base}"]
        for module, name in self._added:
            wanted.setdefault(module, []).append(name)
        found: list[cst.SimpleStatementLine] = []
        for module, names in wanted.items():
            parsed = cst.parse_statement(f"from {module} import {', '.join(names)}")
            if isinstance(parsed, cst.SimpleStatementLine):
                found.append(parsed.with_changes(trailing_whitespace=cst.TrailingWhitespace(newline=newline)))
        return found


class _Mover(cst.CSTTransformer):
    """Takes names out of imports that only checkers see."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self._remover = _Remover(names)

    @override
    def leave_If(
        self, original_node: cst.If, updated_node: cst.If
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        checked = m.Name("TYPE_CHECKING") | m.Attribute(attr=m.Name("TYPE_CHECKING"))
        if not m.matches(updated_node.test, checked) or not isinstance(updated_node.body, cst.IndentedBlock):
            return updated_node
        body = updated_node.body.visit(self._remover)
        if isinstance(body, cst.IndentedBlock) and not body.body:
            if updated_node.orelse is None and not is_commented(updated_node):
                return cst.RemoveFromParent()
            body = body.with_changes(body=[cst.SimpleStatementLine([cst.Pass()])])
        return updated_node.with_changes(body=body)


class _Remover(cst.CSTTransformer):
    """Takes names out of imports."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self._names = names

    @override
    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        if len(updated_node.body) != 1:
            return updated_node
        statement = updated_node.body[0]
        if not isinstance(statement, cst.ImportFrom) or isinstance(statement.names, cst.ImportStar):
            return updated_node
        left = _without(statement.names, self._names)
        if len(left) == len(statement.names):
            return updated_node
        if left:
            return carried(original_node, updated_node.with_changes(body=[statement.with_changes(names=left)]))
        return updated_node if is_commented(updated_node) else cst.RemoveFromParent()


def _without(names: Sequence[cst.ImportAlias], gone: Collection[str]) -> list[cst.ImportAlias]:
    left = [alias for alias in names if _local(alias) not in gone]
    if left and left[-1] is not names[-1]:
        left[-1] = left[-1].with_changes(comma=names[-1].comma)
    return left


def _local(alias: cst.ImportAlias) -> str:
    if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
        return alias.asname.name.value
    return cst.Module([]).code_for_node(alias.name).partition(".")[0]


def _is_vllm(statement: cst.Import | cst.ImportFrom) -> bool:
    return isinstance(statement, cst.ImportFrom) and m.matches(
        statement, m.ImportFrom(module=m.MatchIfTrue(lambda node: _root(node) == "vllm"))
    )


def _root(node: object) -> str:
    return cst.Module([]).code_for_node(node).partition(".")[0] if isinstance(node, cst.CSTNode) else ""


def _place(body: Sequence[cst.BaseStatement]) -> int:
    """Where new imports go: behind the last of the first run of imports at the top."""
    imports = m.SimpleStatementLine(body=[m.Import() | m.ImportFrom(), m.ZeroOrMore()])
    places = [index for index, each in enumerate(body) if m.matches(each, imports)]
    at = places[0] + 1 if places else 0
    while at in places:
        at += 1
    return at


def _used(module: cst.Module, name: str) -> bool:
    """Whether ``name`` is used anywhere but where it is imported; a word in a string counts."""
    without = module.visit(_Remover({name}))
    return re.search(rf"\b{re.escape(name)}\b", without.code) is not None
