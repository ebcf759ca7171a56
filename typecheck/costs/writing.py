"""What one module writes to satisfy a checker: counted in its syntax and its comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["Writing", "count", "total"]

_IGNORE = re.compile(r"\b(type|mypy|pyright|pyrefly|ty|zuban):\s*ignore\b")
_BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_SPEC = "kv_cache_spec"
_GUARDS = ("TypeGuard", "TypeIs")


@dataclass(frozen=True)
class Writing:
    """How often each kind stands in some source.

    Attributes:
        lines: lines of code; comments, docstrings and empty lines are none.
        annotated: those of them with a part of an annotation.
        casts: calls of ``cast``.
        ignores: comments that silence a checker, by which one; ``type`` is the one that all of them read.
        asserts: ``assert isinstance(...)``.
        anys: ``Any``, wherever a type is said.
        guards: functions that narrow by their author's word: ``TypeGuard`` and ``TypeIs``.
        spec_tests: ``isinstance`` with a spec's class, outside asserts.
        re_annotations: ``kv_cache_spec: X`` in a class.
        narrowed_inits: ``__init__`` of a subclass that says which spec it takes.
    """

    lines: int = 0
    annotated: int = 0
    casts: int = 0
    ignores: Mapping[str, int] = field(default_factory=dict[str, int])
    asserts: int = 0
    anys: int = 0
    guards: int = 0
    spec_tests: int = 0
    re_annotations: int = 0
    narrowed_inits: int = 0

    @property
    def hatches(self) -> int:
        """All ways around the checker together: casts, ignores, asserts, ``Any`` and guards."""
        return self.casts + sum(self.ignores.values()) + self.asserts + self.anys + self.guards


def count(source: str) -> Writing:
    """Count one module.

    Raises:
        SyntaxError: it is none.
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    asserts = [node for node in nodes if isinstance(node, ast.Assert) and any(_calls(node, "isinstance"))]
    asserted = {call for node in asserts for call in _calls(node, "isinstance")}
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    hints = list(_hints(nodes))
    texts = [*hints, *(call.args[0] for call in _calls(tree, "cast") if call.args)]
    code = _lines(source, tree)
    return Writing(
        lines=len(code),
        annotated=len(code & {line for hint in hints for line in _span(hint)}),
        casts=len(list(_calls(tree, "cast"))),
        ignores=dict(sorted(Counter(_ignores(source)).items())),
        asserts=len(asserts),
        anys=sum(_named(node, "Any") for node in nodes) + sum(map(_anys_in_text, texts)),
        guards=sum(isinstance(node, ast.FunctionDef) and _guards(node.returns) for node in nodes),
        spec_tests=sum(call not in asserted and _tests_spec(call) for call in _calls(tree, "isinstance")),
        re_annotations=sum(_re_annotates(statement) for node in classes for statement in node.body),
        narrowed_inits=sum(_narrows(statement) for node in classes if _is_subclass(node) for statement in node.body),
    )


def total(parts: Iterable[Writing]) -> Writing:
    """All of them together."""
    every = list(parts)
    ignores = Counter[str]()
    for each in every:
        ignores.update(each.ignores)
    return Writing(
        lines=sum(each.lines for each in every),
        annotated=sum(each.annotated for each in every),
        casts=sum(each.casts for each in every),
        ignores=dict(sorted(ignores.items())),
        asserts=sum(each.asserts for each in every),
        anys=sum(each.anys for each in every),
        guards=sum(each.guards for each in every),
        spec_tests=sum(each.spec_tests for each in every),
        re_annotations=sum(each.re_annotations for each in every),
        narrowed_inits=sum(each.narrowed_inits for each in every),
    )


def _lines(source: str, tree: ast.Module) -> set[int]:
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _BLANK:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.difference_update(_span(node))
    return found


def _span(node: ast.expr | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _ignores(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _IGNORE.findall(token.string)


def _hints(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    for node in nodes:
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns


def _calls(node: ast.AST, name: str) -> Iterator[ast.Call]:
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and _named(each.func, name):
            yield each


def _named(node: ast.AST | None, name: str) -> bool:
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)


def _anys_in_text(hint: ast.expr) -> int:
    """In types that are strings."""
    texts = [node.value for node in ast.walk(hint) if isinstance(node, ast.Constant)]
    return sum(
        _named(node, "Any")
        for text in texts
        if isinstance(text, str)
        for node in ast.walk(ast.parse(text, mode="eval"))
    )


def _guards(returns: ast.expr | None) -> bool:
    return isinstance(returns, ast.Subscript) and any(_named(returns.value, name) for name in _GUARDS)


def _tests_spec(call: ast.Call) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id.endswith(("Spec", "Specs"))
        for argument in call.args[1:]
        for node in ast.walk(argument)
    )


def _re_annotates(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.AnnAssign) and _named(statement.target, _SPEC) and statement.value is None


def _narrows(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.FunctionDef)
        and statement.name == "__init__"
        and any(argument.arg == _SPEC and argument.annotation for argument in statement.args.args)
    )


def _is_subclass(node: ast.ClassDef) -> bool:
    """Of a builder, whatever it is called with."""
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return any(isinstance(base, ast.Name) and base.id.endswith("Builder") for base in bases)
