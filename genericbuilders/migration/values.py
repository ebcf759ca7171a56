"""Where a file gives a builder a spec of a wider type, or hands one on: what other hints would forbid."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from genericbuilders.migration.bindings import Function, dotted
from genericbuilders.migration.classes import SPEC, ClassInfo
from genericbuilders.migration.project import Project
from genericbuilders.migration.spec_names import identities

__all__ = ["hands_on", "wide_value"]

_WIDE = frozenset({"KVCacheSpec"})


def wide_value(project: Project, module: str, cls: ClassInfo) -> tuple[int, str] | None:
    """Where a function gives ``cls`` what it declares a ``KVCacheSpec`` and does not check: line, and what does."""
    tree = project.tree(module)
    hint = None if cls.init is None else cls.init.annotation
    asks = cls.init is None or (hint is not None and identities(project, module, hint) == _WIDE)
    for function in (each for each in ast.walk(tree) if isinstance(each, Function)):
        wide = set(_wide_parameters(project, module, function))
        if not wide:
            continue
        for node in ast.walk(function):
            if asks and isinstance(node, ast.Call) and dotted(node.func) == cls.name:
                given = [*node.args[:1], *(each.value for each in node.keywords if each.arg == SPEC)]
                if any(isinstance(each, ast.Name) and each.id in wide for each in given):
                    return node.lineno, f"{function.name} gives it a KVCacheSpec"
    return None


def hands_on(tree: ast.Module, line: int, method: str, name: str) -> int | None:
    """The line where the ``method`` of the class at ``line`` gives ``name`` whole to anything but a check; or none."""
    own = _class_at(tree, line)
    for function in () if own is None else own.body:
        if not (isinstance(function, Function) and function.name == method):
            continue
        read = {id(each.value) for each in ast.walk(function) if isinstance(each, ast.Attribute)}
        for call in (each for each in ast.walk(function) if isinstance(each, ast.Call)):
            above = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "super()"
            if above or dotted(call.func) in ("isinstance", "hasattr", "type"):
                read |= {id(each) for each in (*call.args, *(each.value for each in call.keywords))}
        for each in ast.walk(function):
            if isinstance(each, ast.Name) and each.id == name and id(each) not in read:
                return each.lineno
    return None


def _wide_parameters(project: Project, module: str, function: Function) -> Iterator[str]:
    """The parameters that are declared to take any spec, and that nothing checks or binds anew."""
    checked = {
        each.args[0].id
        for each in ast.walk(function)
        if isinstance(each, ast.Call)
        and dotted(each.func) == "isinstance"
        and each.args
        and isinstance(each.args[0], ast.Name)
    }
    stored = {
        each.id for each in ast.walk(function) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
    }
    for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
        hint = each.annotation
        text = None if hint is None else hint.value if isinstance(hint, ast.Constant) else ast.unparse(hint)
        if isinstance(text, str) and identities(project, module, text) == _WIDE and each.arg not in checked | stored:
            yield each.arg


def _class_at(tree: ast.Module, line: int) -> ast.ClassDef | None:
    return next((each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and each.lineno == line), None)
