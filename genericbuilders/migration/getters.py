"""``get_builder_cls`` of back ends: which builder each returns, and whether its hint can say so."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from genericbuilders.migration.bindings import Scope, bound_in, dotted
from genericbuilders.migration.classes import ClassInfo
from genericbuilders.migration.project import Project
from genericbuilders.migration.result import Finding

__all__ = ["Getter", "find_getters"]

GETTER = "get_builder_cls"
Around = tuple[Scope, ...]


@dataclass(frozen=True)
class Getter:
    """One ``get_builder_cls``.

    Attributes:
        line: of it.
        returns: its new return annotation; ``None`` to leave it.
        finding: what is told.
    """

    line: int
    returns: str | None
    finding: Finding


def find_getters(project: Project, module: str, *, typed: bool) -> list[Getter]:
    """The getters of one file of which there is something to say, in order.

    Args:
        project: all files.
        module: the file.
        typed: whether they are to say what they return; if not, only those that choose are told.
    """
    found: list[Getter] = []
    if not project.modules[module].has_getters:
        return found
    for node, around in _functions(project.tree(module).body, ()):
        returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
        if len(returned) > 1:
            told = "get_builder_cls chooses at run time; annotate it with what the builders have in common"
            found.append(_left(node, told))
            continue
        name = _returned(node) if typed else None
        target = None if name is None else project.resolve(module, name)
        if name is None or target is None or project.factory_base(module, (name,)) is None:
            continue
        returns = f'type["{name}"]'
        said = "" if node.returns is None else ast.unparse(node.returns).replace("'", '"').replace('"', "")
        if said == returns.replace('"', ""):
            continue
        reason = _obstacle(project, module, name, node, around)
        if reason is not None:
            found.append(_left(node, f"get_builder_cls returns {name}, but {reason}"))
            continue
        finding = Finding(
            node.lineno, node.col_offset + 1, "builder-getter", f"get_builder_cls returns {returns}", changes=True
        )
        found.append(Getter(node.lineno, returns, finding))
    return found


def _left(node: ast.FunctionDef, told: str) -> Getter:
    return Getter(node.lineno, None, Finding(node.lineno, node.col_offset + 1, "builder-getter", told, changes=False))


def _returned(node: ast.FunctionDef) -> str | None:
    """The dotted name that a function returns, if it returns but one thing."""
    returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
    return (dotted(returned[0]) or None) if len(returned) == 1 and returned[0] is not None else None


def _functions(body: Sequence[ast.stmt], around: Around) -> Iterator[tuple[ast.FunctionDef, Around]]:
    """Each getter, and the classes and functions around it, outermost first."""
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == GETTER:
            yield node, around
        inner = (*around, node) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else around
        for name in ("body", "orelse", "finalbody"):
            yield from _functions(getattr(node, name, ()), inner)
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _functions(part.body, inner)


def _obstacle(project: Project, module: str, name: str, node: ast.FunctionDef, around: Around) -> str | None:
    """Why a getter's hint cannot say which builder it returns."""
    head = name.partition(".")[0]
    scopes = project.scopes(module)
    named = scopes.is_of_module(head) or project.modules[module].stars
    if not named or any(head in bound_in(each) for each in (*around, node)):
        return f"{head} is bound inside a function only, where checkers do not look for the names of hints"
    if scopes.is_of_module("type") or any("type" in bound_in(each) for each in around):
        return "type means something else here"
    owner = around[-1] if around and isinstance(around[-1], ast.ClassDef) else None
    other = None if owner is None else _disagreeing(project, module, owner, name)
    return None if other is None else f"{other}: an override could not return another; annotate both by what they share"


def _disagreeing(project: Project, module: str, owner: ast.ClassDef, name: str) -> str | None:
    """A back end above or below that returns a builder which the hint would not allow it, or this one."""
    own = next((each for each in project.modules[module].classes if each.line == owner.lineno), None)
    target = project.resolve(module, name)
    if own is None or target is None:
        return None
    for below_module, below in project.overriders(module, own, GETTER):
        other = _target_of(project, below_module, below)
        if other is None or not _derives(project, other, target):
            return f"{below.name}, a back end below, returns {(other or 'what only a run knows').rpartition('.')[2]}"
    for above_module, above in project.overridden(module, own, GETTER):
        node = _getter_of(project, above_module, above)
        said = None if node is None else _said(project, above_module, node)
        if said is not None and not _derives(project, target, said):
            return f"{above.name}, a back end above, says {said.rpartition('.')[2]}"
    return None


def _getter_of(project: Project, module: str, cls: ClassInfo) -> ast.FunctionDef | None:
    for node, around in _functions(project.tree(module).body, ()):
        if around and isinstance(around[-1], ast.ClassDef) and around[-1].lineno == cls.line:
            return node
    return None


def _target_of(project: Project, module: str, cls: ClassInfo) -> str | None:
    """The qualified name of what a back end's getter returns."""
    node = _getter_of(project, module, cls)
    name = None if node is None else _returned(node)
    return None if name is None else project.resolve(module, name)


def _said(project: Project, module: str, node: ast.FunctionDef) -> str | None:
    """The builder of these files that a getter's hint names."""
    text = "" if node.returns is None else ast.unparse(node.returns).replace("'", "").replace('"', "")
    name = text[text.find("[") + 1 :].partition("[")[0].rstrip("]")
    target = project.resolve(module, name) if name else None
    return None if target is None or project.class_of(target) is None or project.is_base(target) else target


def _derives(project: Project, target: str, other: str) -> bool:
    """Whether a builder is another, or derives from it."""
    while target != other:
        found = project.class_of(target)
        base = None if found is None else project.base_of(*found)
        if base is None or not base.target:
            return False
        target = base.target
    return True
