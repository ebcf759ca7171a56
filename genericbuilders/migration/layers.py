"""Asserts of a metadata type in layers: needless where a typed look-up stands before them, or can be put there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from genericbuilders.migration.modules import dotted
from genericbuilders.migration.project import Project
from genericbuilders.migration.result import Finding

__all__ = ["LayerAssert", "find_layer_asserts"]

_NO_HANDLE = "no handle that knows the type is at hand: give the layer its AttentionLayer, and look it up by that"
_PACKAGES = ("genericbuilders.adapter", "genericbuilders.adapter.attention", "genericbuilders.adapter.bound")
STEPS = frozenset({"genericbuilders.adapter.Step", "genericbuilders.adapter.erased.Step"})
HANDLES = frozenset(f"{package}.{name}" for package in _PACKAGES for name in ("AttentionLayer", "TypedLayer"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class LayerAssert:
    """One ``assert isinstance(attn_metadata, X)``.

    Attributes:
        line: of it.
        removable: whether a look-up that has that type is assigned just before, or can be.
        finding: what is told.
        lookup: the line of the assignment that becomes such a look-up, and its new value.
    """

    line: int
    removable: bool
    finding: Finding
    lookup: tuple[int, str] | None = None


def find_layer_asserts(project: Project, module: str, tree: ast.Module) -> list[LayerAssert]:
    """The asserts of one file, in order."""
    found: list[LayerAssert] = []
    for owner, function in _functions(tree):
        reader = _Reader(
            set(_steps(project, module, function)), {} if owner is None else _handles(project, module, owner)
        )
        for body in _bodies(function.body):
            found += reader.read(body)
    return found


class _Reader:
    """Reads the blocks of one function.

    Args:
        steps: expressions that are a `Step`.
        handles: expressions that are a handle, and the metadata type that each knows.
    """

    def __init__(self, steps: set[str], handles: Mapping[str, str]) -> None:
        self.steps = steps
        self.handles = handles

    def read(self, body: Sequence[ast.stmt]) -> Iterator[LayerAssert]:
        looked_up, assigned = "", 0
        for node in body:
            if isinstance(node, ast.Assert) and (asked := _asked(node)):
                known = [name for name, metadata in self.handles.items() if metadata == asked]
                typed, handle = looked_up in known, known[0] if len(known) == 1 else None
                step = next(iter(sorted(self.steps)), None)
                lookup: tuple[int, str] | None = None
                told = "the look-up in the step has that type already" if typed else _NO_HANDLE
                if not typed and handle is not None and step is not None and assigned:
                    lookup = assigned, f"{step}[{handle}]"
                    told = f"the handle {handle} knows the type: looked up by that"
                changes = typed or lookup is not None
                finding = Finding(node.lineno, node.col_offset + 1, "metadata-assert", told, changes)
                yield LayerAssert(node.lineno, changes, finding, lookup)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and _target(node) == "attn_metadata":
                # vLLM's look-up by the layer's name; any other may be of another layer.
                is_lookup = isinstance(node.value, ast.Subscript) and _names_metadata(node.value.value)
                in_step = isinstance(node.value, ast.Subscript) and dotted(node.value.value) in self.steps
                looked_up = dotted(node.value.slice) if isinstance(node.value, ast.Subscript) and in_step else ""
                assigned = node.lineno if is_lookup else 0


def _functions(tree: ast.Module) -> Iterator[tuple[ast.ClassDef | None, Function]]:
    methods: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, Function):
                    methods.add(id(each))
                    yield node, each
    for node in ast.walk(tree):
        if isinstance(node, Function) and id(node) not in methods:
            yield None, node


def _steps(project: Project, module: str, function: Function) -> Iterator[str]:
    """Parameters that are a `Step`, and the step of those that are a forward context."""
    for each in (*function.args.args, *function.args.kwonlyargs):
        target = _class_of(project, module, each.annotation)
        if target in STEPS:
            yield each.arg
        elif target == "genericbuilders.model.ForwardContext":
            yield f"{each.arg}.step"


def _handles(project: Project, module: str, owner: ast.ClassDef) -> Mapping[str, str]:
    """Attributes that are set to a handle in the constructor, and the metadata type that each knows."""
    found: dict[str, str] = {}
    init = next((each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    if init is None:
        return {}
    known = {
        each.arg: ast.unparse(each.annotation.slice)
        for each in (*init.args.args, *init.args.kwonlyargs)
        if isinstance(each.annotation, ast.Subscript)
        and project.resolve(module, dotted(each.annotation.value)) in HANDLES
    }
    for node in init.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in known:
            name = dotted(node.targets[0])
            if name.startswith("self."):
                found[name] = known[node.value.id]
    return found


def _class_of(project: Project, module: str, annotation: ast.expr | None) -> str | None:
    if annotation is None:
        return None
    name = annotation.value if isinstance(annotation, ast.Constant) else dotted(annotation)
    return project.resolve(module, name) if isinstance(name, str) and name else None


def _asked(node: ast.Assert) -> str:
    """The type that an ``assert isinstance(attn_metadata, X)`` asks for; empty for any other assert."""
    test = node.test
    if not isinstance(test, ast.Call) or dotted(test.func) != "isinstance" or len(test.args) != 2:
        return ""
    return ast.unparse(test.args[1]) if dotted(test.args[0]) == "attn_metadata" else ""


def _names_metadata(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "attn_metadata"


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    if isinstance(node, ast.AnnAssign):
        return dotted(node.target)
    return dotted(node.targets[0]) if len(node.targets) == 1 else ""


def _bodies(body: Sequence[ast.stmt]) -> Iterator[Sequence[ast.stmt]]:
    """A block, and those inside it; functions and classes within are blocks of their own."""
    yield body
    for node in body:
        if isinstance(node, ast.If | ast.For | ast.While):
            yield from _bodies(node.body)
            yield from _bodies(node.orelse)
        elif isinstance(node, ast.With):
            yield from _bodies(node.body)
        elif isinstance(node, ast.Try):
            for part in (node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody):
                yield from _bodies(part)
