"""Imports after a rewrite: what is needed beside what was there, and nothing that lost its last use."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m
from typing_extensions import override

from genericbuilders.migration.comments import carried, is_commented
from genericbuilders.migration.plan import BASE_MODULE, BASE_NAME
from genericbuilders.migration.root_names import Brought, NewBase

__all__ = ["Imports", "rewrite_imports"]


Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement


@dataclass(frozen=True)
class Imports:
    """What the imports of a file become.

    Attributes:
        bases: the new base for each name of vLLM's.
        added: modules and names to import.
        unused: names that lost a use; an import whose name has no use left goes.
        moved: names that only checkers imported, and that ``added`` now imports for all.
        users: the names of the classes that use what is added, which has to stand above them.
    """

    bases: tuple[NewBase, ...] = ()
    added: frozenset[tuple[str, str]] = frozenset()
    unused: frozenset[str] = frozenset()
    moved: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()


def rewrite_imports(module: cst.Module, wanted: Imports) -> cst.Module:
    """Add, replace and drop imports.

    The new base is imported wherever vLLM's was, in its place or behind it, so that it is bound where that was. All
    else is imported at the module's own level, above what uses it.
    """
    if wanted.moved:
        module = module.visit(_Mover(wanted.moved))
    editor = _BaseEditor(wanted.bases)
    module = module.visit(editor) if wanted.bases else module
    added = set(wanted.added) | {
        (BASE_MODULE, _renamed(base.new)) for base in wanted.bases if base.old not in editor.placed
    }
    module = module.with_changes(body=_inserted(module.body, added, wanted))
    gone = {name for name in wanted.unused if name.isidentifier() and not _used(module, name)}
    return module.visit(_Remover(gone)) if gone else module


class _BaseEditor(cst.CSTTransformer):
    """Imports the new base wherever vLLM's is imported."""

    def __init__(self, bases: Sequence[NewBase]) -> None:
        super().__init__()
        self._bases = bases
        self.placed: set[str] = set()

    @override
    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        return False  # what is inside has no statements

    @override
    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        body = self._edited(updated_node.body)
        if body is None:
            return updated_node
        if len(updated_node.body) > 1:
            return updated_node.with_changes(body=body)
        first, *rest = (cst.SimpleStatementLine([each]) for each in body)
        # What stands where the old import stood has its comments; all end as its line did.
        first = carried(original_node, updated_node.with_changes(body=first.body))
        return cst.FlattenSentinel([first, *(_ending(each, updated_node) for each in rest)])

    @override
    def leave_SimpleStatementSuite(
        self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
    ) -> cst.SimpleStatementSuite:
        body = self._edited(updated_node.body)
        return updated_node if body is None else updated_node.with_changes(body=body)

    def _edited(self, statements: Sequence[cst.BaseSmallStatement]) -> list[cst.BaseSmallStatement] | None:
        """The statements of a line with the new imports among them; ``None`` if there are none."""
        found: list[cst.BaseSmallStatement] = []
        changed = False
        for statement in statements:
            made = self._imports(statement) if isinstance(statement, cst.Import | cst.ImportFrom) else None
            if made is None:
                found.append(statement)
                continue
            changed = True
            # The last keeps what stood between the old one and its neighbour.
            found += [each.with_changes(semicolon=cst.MaybeSentinel.DEFAULT) for each in made[:-1]]
            found.append(made[-1].with_changes(semicolon=statement.semicolon))
        return found if changed else None

    def _imports(self, statement: cst.Import | cst.ImportFrom) -> list[cst.Import | cst.ImportFrom] | None:
        brought = set(_brought(statement))
        here = [base for base in self._bases if base.brought & brought]
        if not here:
            return None
        self.placed |= {base.old for base in here}
        made: list[cst.Import | cst.ImportFrom] = [statement]
        gone = {base.old for base in here if base.replaced}
        if gone and isinstance(statement, cst.ImportFrom) and not isinstance(statement.names, cst.ImportStar):
            left = _without(statement.names, gone)
            made = [statement.with_changes(names=left)] if left else []
        new = dict.fromkeys(base.new for base in here)
        return [*made, *(_import(BASE_MODULE, (_renamed(each),)) for each in new)]


def _ending(line: cst.SimpleStatementLine, like: cst.SimpleStatementLine) -> cst.SimpleStatementLine:
    """A line with the line end of another one."""
    newline = like.trailing_whitespace.newline
    return line.with_changes(trailing_whitespace=cst.TrailingWhitespace(newline=newline))


def _renamed(name: str) -> str:
    return BASE_NAME if name == BASE_NAME else f"{BASE_NAME} as {name}"


def _import(module: str, names: Collection[str]) -> cst.ImportFrom:
    parsed = cst.parse_statement(f"from {module} import {', '.join(names)}")
    if isinstance(parsed, cst.SimpleStatementLine) and isinstance(made := parsed.body[0], cst.ImportFrom):
        return made
    raise TypeError(f"no import statement: {module}, {names}")


def _brought(statement: cst.Import | cst.ImportFrom) -> Iterator[Brought]:
    if isinstance(statement, cst.Import):
        yield from (Brought("", _code(alias.name), _local(alias)) for alias in statement.names)
        return
    module = "." * len(statement.relative) + ("" if statement.module is None else _code(statement.module))
    if isinstance(statement.names, cst.ImportStar):
        yield Brought(module, "*", "*")
        return
    yield from (Brought(module, _code(alias.name), _local(alias)) for alias in statement.names)


def _inserted(body: Sequence[Statement], added: Collection[tuple[str, str]], wanted: Imports) -> Sequence[Statement]:
    """The module's statements with new imports among them, at its own level and above all that use them."""
    if not added:
        return body
    by_module: dict[str, list[str]] = {}
    for module, name in sorted(added):
        by_module.setdefault(module, []).append(name)
    lines = [cst.SimpleStatementLine([_import(module, names)]) for module, names in by_module.items()]
    end = next((index for index, each in enumerate(body) if _holds(each, wanted.users)), len(body))
    at = _place(body[:end])
    before = body[at - 1] if at else None
    if isinstance(before, cst.SimpleStatementLine):
        lines = [_ending(each, before) for each in lines]
    return [*body[:at], *lines, *body[at:]]


def _holds(node: cst.CSTNode, names: Collection[str]) -> bool:
    """Whether one of the classes stands in a statement, or is it."""
    if isinstance(node, cst.ClassDef) and node.name.value in names:
        return True
    blocks = (cst.BaseCompoundStatement, cst.BaseSuite, cst.Else, cst.Finally, cst.ExceptHandler, cst.MatchCase)
    return any(_holds(each, names) for each in node.children if isinstance(each, blocks))


def _place(body: Sequence[Statement]) -> int:
    """Where new imports go: behind that of the new base, or vLLM's first, or the first run of imports at the top."""
    imports = m.SimpleStatementLine(body=[m.OneOf(m.Import(), m.ImportFrom()), m.ZeroOrMore()])
    places = [index for index, each in enumerate(body) if m.matches(each, imports)]
    ours, vllms = ([index for index in places if _is_from(body[index], module)] for module in (BASE_MODULE, "vllm"))
    if ours:
        return ours[-1] + 1
    if vllms:
        return vllms[0] + 1
    if places:
        at = places[0] + 1
        while at in places:
            at += 1
        return at
    docstring = m.SimpleStatementLine(body=[m.Expr(m.SimpleString() | m.ConcatenatedString())])
    return 1 if body and m.matches(body[0], docstring) else 0


def _is_from(line: Statement, module: str) -> bool:
    """Whether a line imports from a module, or one inside it."""
    brought = (
        each
        for statement in (line.body if isinstance(line, cst.SimpleStatementLine) else ())
        if isinstance(statement, cst.ImportFrom)
        for each in _brought(statement)
    )
    return any(f"{each.module}.".startswith(f"{module}.") for each in brought)


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
    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        return False  # what is inside has no statements

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
    return _code(alias.name).partition(".")[0]


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def _used(module: cst.Module, name: str) -> bool:
    """Whether ``name`` is used anywhere but where it is imported; a word in a string counts."""
    without = module.visit(_Remover({name}))
    return re.search(rf"\b{re.escape(name)}\b", without.code) is not None
