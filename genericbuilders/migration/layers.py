"""Asserts of a metadata type in layers: needless where a typed look-up stands before them, and told where none can."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from genericbuilders.migration.modules import dotted
from genericbuilders.migration.project import Project
from genericbuilders.migration.result import Finding

__all__ = ["LayerAssert", "find_layer_asserts"]

_NO_HANDLE = "no handle that knows the type is at hand: give the layer its AttentionLayer, and look it up by that"
STEPS = frozenset({"genericbuilders.adapter.Step", "genericbuilders.adapter.erased.Step"})


@dataclass(frozen=True)
class LayerAssert:
    """One ``assert isinstance(attn_metadata, X)``.

    Attributes:
        line: of it.
        removable: whether ``step[layer]``, which has that type already, was assigned just before.
        finding: what is told.
    """

    line: int
    removable: bool
    finding: Finding


def find_layer_asserts(project: Project, module: str, tree: ast.Module) -> list[LayerAssert]:
    """The asserts of one file, in order."""
    found: list[LayerAssert] = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            steps = set(_steps(project, module, function))
            for body in _bodies(function.body):
                found += _in_block(body, steps)
    return found


def _in_block(body: Sequence[ast.stmt], steps: set[str]) -> Iterator[LayerAssert]:
    typed = False
    for node in body:
        if isinstance(node, ast.Assert) and _checks_metadata(node):
            told = "the look-up in the step has that type already" if typed else _NO_HANDLE
            finding = Finding(node.lineno, node.col_offset + 1, "metadata-assert", told, typed)
            yield LayerAssert(node.lineno, typed, finding)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and _target(node) == "attn_metadata":
            value = node.value
            typed = isinstance(value, ast.Subscript) and dotted(value.value) in steps


def _steps(project: Project, module: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Parameters that are a `Step`, and attributes of a forward context that hold one."""
    for each in (*function.args.args, *function.args.kwonlyargs):
        if each.annotation is None:
            continue
        name = each.annotation.value if isinstance(each.annotation, ast.Constant) else dotted(each.annotation)
        target = project.resolve(module, name) if isinstance(name, str) and name else None
        if target in STEPS:
            yield each.arg
        elif target == "genericbuilders.model.ForwardContext":
            yield f"{each.arg}.step"


def _checks_metadata(node: ast.Assert) -> bool:
    test = node.test
    return (
        isinstance(test, ast.Call)
        and dotted(test.func) == "isinstance"
        and len(test.args) == 2
        and dotted(test.args[0]) == "attn_metadata"
    )


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    if isinstance(node, ast.AnnAssign):
        return dotted(node.target)
    return dotted(node.targets[0]) if len(node.targets) == 1 else ""


def _bodies(body: Sequence[ast.stmt]) -> Iterator[Sequence[ast.stmt]]:
    """A block, and those inside it; functions and classes within are blocks of their own."""
    yield body
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(node, ast.If | ast.For | ast.While):
            yield from _bodies(node.body)
            yield from _bodies(node.orelse)
        elif isinstance(node, ast.With):
            yield from _bodies(node.body)
        elif isinstance(node, ast.Try):
            for part in (node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody):
                yield from _bodies(part)
