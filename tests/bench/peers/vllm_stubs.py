"""Runs under the peer's Python: what local stubs say of vLLM that is not so there, a line each on stdout.

python vllm_stubs.py TYPINGS_FOLDER
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="ERROR")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    """Check every module, and say what is wrong and how much was looked at."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the peer prints goes to stderr
    folder = Path(sys.argv[1])
    checked = 0
    for path in sorted((folder / "vllm").rglob("*.pyi")):
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        module = importlib.import_module(name)
        for node in ast.parse(path.read_text()).body:
            for said, right in statements(node, module):
                checked += 1
                if not right:
                    print(f"{name}: {said}", file=answers)
    print(f"checked {checked}", file=answers, flush=True)


def statements(node: ast.stmt, module: object) -> Iterator[tuple[str, bool]]:
    """What a top-level statement says, and whether it is so."""
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if alias.asname is not None:
                yield f"{alias.asname} exists", hasattr(module, alias.asname)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield f"{node.target.id} exists", hasattr(module, node.target.id)
    elif isinstance(node, Function):
        yield f"{node.name} exists", hasattr(module, node.name)
        yield from parameters(node.name, node, getattr(module, node.name, None), skip=0)
    elif isinstance(node, ast.ClassDef):
        cls = getattr(module, node.name, None)
        yield f"{node.name} is a class", isinstance(cls, type)
        if isinstance(cls, type):
            yield from members(node, cls)


def members(node: ast.ClassDef, cls: type) -> Iterator[tuple[str, bool]]:
    """What a class says of itself, and whether it is so."""
    for base in node.bases:
        name = ast.unparse(base).partition("[")[0]
        if name not in ("ABC", "Protocol", "Generic", "NamedTuple"):
            yield f"{node.name} derives from {name}", name in [each.__name__ for each in cls.__mro__]
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield f"{node.name}.{item.target.id} exists", has(cls, item.target.id)
        elif isinstance(item, ast.Assign) and issubclass(cls, enum.Enum):
            (target,) = item.targets
            member = ast.unparse(target)
            right = member in cls.__members__
            if right and isinstance(item.value, ast.Constant) and item.value.value is not Ellipsis:
                right = cls[member].value == item.value.value
            yield f"{node.name}.{member} is {ast.unparse(item.value)}", right
        elif isinstance(item, Function):
            actual = inspect.getattr_static(cls, item.name, None)
            yield f"{node.name}.{item.name} exists", actual is not None
            if actual is not None and not isinstance(actual, property):
                static = isinstance(actual, staticmethod)
                function = getattr(actual, "__func__", actual)
                yield from parameters(f"{node.name}.{item.name}", item, function, skip=0 if static else 1)


def parameters(name: str, node: Function, actual: object, skip: int) -> Iterator[tuple[str, bool]]:
    """Whether a function takes the stub's parameters, and asks for no others."""
    if not callable(actual):
        return
    signature = inspect.signature(actual)
    found = list(signature.parameters.values())[skip:]
    by_name = {each.name for each in found}
    anything = any(each.kind is each.VAR_KEYWORD for each in found)
    said = [each.arg for each in (*node.args.args[skip:], *node.args.kwonlyargs)]
    for each in said:
        yield f"{name} takes {each}", each in by_name or anything
    for each in found:
        variable = each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        if each.default is each.empty and not variable:
            yield f"{name} asks for {each.name}, too", each.name in said


def has(cls: type, name: str) -> bool:
    """Whether objects of a class have an attribute, by its annotation, its value or its constructor's source."""
    if hasattr(cls, name) or any(name in inspect.get_annotations(each) for each in cls.__mro__):
        return True
    return f"self.{name}" in inspect.getsource(cls)


if __name__ == "__main__":
    main()
