"""Asserts of a metadata type in layers: needless where a typed look-up stands before them, or can be put there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from genericbuilders.migration.bindings import Function, dotted, read_names, rebinds
from genericbuilders.migration.project import Project
from genericbuilders.migration.result import Finding
from genericbuilders.migration.source import Position, Source, why_it_stays

__all__ = ["LayerAssert", "find_layer_asserts"]

_NO_HANDLE = "no handle that knows the type is at hand: give the layer its AttentionLayer, and look it up by that"
_PACKAGES = ("genericbuilders.adapter", "genericbuilders.adapter.attention", "genericbuilders.adapter.bound")
STEPS = frozenset({"genericbuilders.adapter.Step", "genericbuilders.adapter.erased.Step"})
HANDLES = frozenset(f"{package}.{name}" for package in _PACKAGES for name in ("AttentionLayer", "TypedLayer"))
_CONTEXT = "genericbuilders.model.ForwardContext"
# What vLLM's layers call themselves.
_OWN_NAMES = ("self.layer_name", "self.prefix", "self.name")


@dataclass(frozen=True)
class LayerAssert:
    """One ``assert isinstance(attn_metadata, X)``.

    Attributes:
        position: of it.
        removable: whether a look-up that has that type is assigned just before, or can be.
        finding: what is told.
        lookup: where the assignment stands that becomes such a look-up, and its new value.
    """

    position: Position
    removable: bool
    finding: Finding
    lookup: tuple[Position, str] | None = None


def find_layer_asserts(project: Project, module: str, tree: ast.Module, source: Source) -> list[LayerAssert]:
    """The asserts of one file, in order."""
    if not project.modules[module].metadata_asserts:
        return []
    names = read_names(tree)
    if not names.is_builtin("isinstance"):
        return []
    found: list[LayerAssert] = []
    for owner, function in _functions(tree):
        handles: Mapping[str, str] = {}
        if owner is not None and not rebinds(function, "self"):
            handles = _handles(project, module, owner)
        reader = _Reader(source, set(_steps(project, module, function)), handles)
        for body in _bodies(function.body):
            found += reader.read(body, documented=body is function.body)
    return found


class _Reader:
    """Reads the blocks of one function.

    Args:
        source: the file.
        steps: expressions that are a `Step`.
        handles: expressions that are a handle, and the metadata type that each knows.
    """

    def __init__(self, source: Source, steps: set[str], handles: Mapping[str, str]) -> None:
        self.source = source
        self.steps = steps
        self.handles = handles

    def read(self, body: Sequence[ast.stmt], *, documented: bool) -> Iterator[LayerAssert]:
        """The asserts of one block."""
        assigned: ast.Assign | None = None
        for index, node in enumerate(body):
            if isinstance(node, ast.Assert) and (asked := _asked(node)):
                lookup, told = self._settled(assigned, asked)
                changes = told is not None
                stays = why_it_stays(self.source, body, index, documented=documented) if changes else _NO_HANDLE
                if stays is not None:
                    lookup, told, changes = None, stays if told is None else f"it stays: {stays}", False
                position = self.source.position(node)
                finding = Finding(node.lineno, position[1] + 1, "metadata-assert", str(told), changes)
                yield LayerAssert(position, changes, finding, lookup)
            elif isinstance(node, ast.Assign) and [dotted(each) for each in node.targets] == ["attn_metadata"]:
                assigned = node
            elif _stores(node):
                assigned = None

    def _settled(self, assigned: ast.Assign | None, asked: str) -> tuple[tuple[Position, str] | None, str | None]:
        """What the assignment before an assert becomes, and what is told; nothing where the assert has to stay."""
        if assigned is None or not isinstance(value := assigned.value, ast.Subscript):
            return None, None
        known = [name for name, metadata in self.handles.items() if metadata == asked]
        if dotted(value.value) in self.steps and dotted(value.slice) in known:
            return None, "the look-up in the step has that type already"
        step = dotted(value.value).removesuffix(".attn_metadata")
        # vLLM's look-up by the layer's own name; any other may be of another layer.
        if step == dotted(value.value) or step not in self.steps or len(known) != 1:
            return None, None
        if dotted(value.slice) not in (*_OWN_NAMES, f"{known[0]}.name"):
            return None, None
        new = f"{step}[{known[0]}]"
        return (self.source.position(assigned), new), f"the handle {known[0]} knows the type: looked up by that"


def _stores(node: ast.stmt) -> bool:
    """Whether a statement may give ``attn_metadata`` another value."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id == "attn_metadata" and not isinstance(each.ctx, ast.Load):
            return True
        if isinstance(each, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and each.name == "attn_metadata":
            return True
        if isinstance(each, ast.Nonlocal | ast.Global) and "attn_metadata" in each.names:
            return True
    return False


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
    """Parameters that are a `Step`, and the step of those that are a forward context; none that is bound anew."""
    for each in (*function.args.args, *function.args.kwonlyargs):
        target = _class_of(project, module, each.annotation)
        if target not in (*STEPS, _CONTEXT) or rebinds(function, each.arg):
            continue
        name = each.arg if target in STEPS else f"{each.arg}.step"
        if not _times_assigned(function, name):
            yield name


def _handles(project: Project, module: str, owner: ast.ClassDef) -> Mapping[str, str]:
    """Attributes that are set to a handle in the constructor and nowhere else, and the metadata type of each."""
    found: dict[str, str] = {}
    init = next((each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    if init is None:
        return {}
    known = {
        each.arg: ast.unparse(each.annotation.slice)
        for each in (*init.args.args, *init.args.kwonlyargs)
        if isinstance(each.annotation, ast.Subscript)
        and project.resolve(module, dotted(each.annotation.value)) in HANDLES
        and not rebinds(init, each.arg)
    }
    for node in init.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in known:
            name = dotted(node.targets[0])
            if name.startswith("self.") and _times_assigned(owner, name) == 1:
                found[name] = known[node.value.id]
    return found


def _times_assigned(where: ast.AST, name: str) -> int:
    """How often an attribute is given a value."""
    return sum(
        isinstance(each, ast.Attribute) and not isinstance(each.ctx, ast.Load) and dotted(each) == name
        for each in ast.walk(where)
    )


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


def _bodies(body: Sequence[ast.stmt]) -> Iterator[Sequence[ast.stmt]]:
    """A block, and those inside it; functions and classes within are blocks of their own."""
    yield body
    for node in body:
        if isinstance(node, ast.If | ast.For | ast.AsyncFor | ast.While):
            yield from _bodies(node.body)
            yield from _bodies(node.orelse)
        elif isinstance(node, ast.With | ast.AsyncWith):
            yield from _bodies(node.body)
        elif isinstance(node, ast.Try):
            for part in (node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody):
                yield from _bodies(part)
