"""What builder classes a tree of packages has, read from the syntax: bases through imports, and hints."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from typecheck.out_of_tree.hatches import Hatches, count_hatches

__all__ = ["ROOT_BUILDER", "WIDE", "Builder", "Inventory", "Module", "Tree", "take_inventory"]

# Hints that are no narrower than the base of all specs.
WIDE = ("KVCacheSpec", "Any", "object")
ROOT_BUILDER = ("vllm.v1.attention.backend", "AttentionMetadataBuilder")
_HOOKS = ("get_cudagraph_support", "get_varlen_cudagraph_max_query_len")
_SPEC = "kv_cache_spec"


@dataclass(frozen=True)
class Module:
    """One parsed file; ``path`` is relative to the tree's root."""

    name: str
    path: str
    syntax: ast.Module
    lines: tuple[str, ...]

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Classes of the module's own scope, those under ``if`` and ``try`` included."""
        return {node.name: node for node in _own_scope(self.syntax.body) if isinstance(node, ast.ClassDef)}

    @cached_property
    def imports(self) -> dict[str, tuple[str, str | None]]:
        """Local name -> (module, name in it), or (module, ``None``) for a module."""
        found: dict[str, tuple[str, str | None]] = {}
        for node in ast.walk(self.syntax):
            if isinstance(node, ast.ImportFrom):
                origin = self._absolute(node)
                for alias in node.names:
                    found.setdefault(alias.asname or alias.name, (origin, alias.name))
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.asname:
                        found.setdefault(alias.asname, (alias.name, None))
        return found

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.name.split(".")
        drop = node.level - 1 if self.path.endswith("__init__.py") else node.level
        parts = package[: len(package) - drop] if drop else package
        return ".".join([*parts, node.module] if node.module else parts)


def _own_scope(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _own_scope([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            handled = [statement for handler in node.handlers for statement in handler.body]
            yield from _own_scope([*node.body, *handled, *node.orelse, *node.finalbody])


class Tree:
    """The modules under one folder, parsed when first asked for."""

    def __init__(self, root: Path, packages: Sequence[str]) -> None:
        self.root = root
        self.packages = tuple(packages)
        self._modules: dict[str, Module | None] = {}

    def files(self, package: str) -> list[Path]:
        """The package's Python files in order of their names."""
        return sorted((self.root / package).rglob("*.py"))

    def module(self, name: str) -> Module | None:
        """The module called ``name``, or ``None`` when the tree has none or it does not parse."""
        if name not in self._modules:
            self._modules[name] = self._parse(name)
        return self._modules[name]

    def module_of(self, file: Path) -> Module | None:
        """The module in ``file``."""
        parts = file.relative_to(self.root).with_suffix("").parts
        return self.module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))

    def _parse(self, name: str) -> Module | None:
        stem = self.root.joinpath(*name.split("."))
        for file in (stem.with_suffix(".py"), stem / "__init__.py"):
            if name and file.is_file():
                text = file.read_text(encoding="utf-8", errors="replace")
                try:
                    syntax = ast.parse(text)
                except SyntaxError:
                    return None
                return Module(name, file.relative_to(self.root).as_posix(), syntax, tuple(text.splitlines()))
        return None

    def resolve(self, module: str, name: str, depth: int = 0) -> tuple[str, str] | None:
        """Where the class that ``module`` calls ``name`` is defined, through re-exports; ``None``: not in the tree."""
        found = self.module(module)
        if found is None or depth > 12:
            return None
        if name in found.classes:
            return module, name
        origin = found.imports.get(name)
        if origin is None or origin[1] is None or origin == (module, name):
            return None
        return self.resolve(origin[0], origin[1], depth + 1)


@dataclass(frozen=True)
class Builder:
    """One builder class.

    Attributes:
        base: its first builder base as written, without type arguments.
        arguments: how many type arguments that base is given.
        direct: the base is vLLM's own `AttentionMetadataBuilder`.
        nested: the class is made inside a function.
        dynamic_base: the base is a value known at run time only.
        init_hint: hint of ``kv_cache_spec`` in its own ``__init__``: a name, ``""``: none, ``None``: no own one.
        hook_hints: the same for each hook that it overrides.
        re_annotation: the class-level annotation of ``kv_cache_spec``.
        parent: the module and name of that base, where it could be followed.
    """

    package: str
    module: str
    path: str
    line: int
    end: int
    name: str
    base: str
    arguments: int
    direct: bool
    nested: bool
    dynamic_base: bool
    init_hint: str | None
    hook_hints: dict[str, str]
    re_annotation: str | None
    hatches: Hatches
    parent: tuple[str, str] | None

    @property
    def key(self) -> tuple[str, str]:
        """Its module and name, as ``parent`` of another has them."""
        return self.module, self.name

    @property
    def own_spec(self) -> str | None:
        """The spec that the class itself says it takes, if it says one."""
        return self.re_annotation or self.init_hint or None

    @property
    def narrow(self) -> bool:
        """Whether that spec is narrower than `KVCacheSpec`."""
        return self.own_spec is not None and self.own_spec not in WIDE


@dataclass
class Inventory:
    """The builders of a tree, and the classes that look like one and whose base could not be followed."""

    builders: list[Builder] = field(default_factory=list[Builder])
    unjudged: list[tuple[str, int, str, str]] = field(default_factory=list[tuple[str, int, str, str]])

    def of(self, package: str) -> list[Builder]:
        """The builders of one package."""
        return [builder for builder in self.builders if builder.package == package]

    def chain(self, builder: Builder) -> list[Builder]:
        """The builder and its ancestors, nearest first, without vLLM's root."""
        by_key = {each.key: each for each in self.builders if not each.nested}
        found = [builder]
        while (parent := by_key.get(found[-1].parent or ("", ""))) is not None and parent not in found:
            found.append(parent)
        return found

    def spec_of(self, builder: Builder) -> str:
        """The spec that the builder or its nearest ancestor with a word on it says; ``KVCacheSpec`` if none does."""
        return next((each.own_spec for each in self.chain(builder) if each.own_spec is not None), "KVCacheSpec")


def take_inventory(tree: Tree) -> Inventory:
    """Every builder class of the tree's packages.

    Raises:
        ValueError: the tree has no `AttentionMetadataBuilder` where vLLM defines it.
    """
    if tree.resolve(*ROOT_BUILDER) != ROOT_BUILDER:
        raise ValueError(f"{tree.root} has no class {'.'.join(ROOT_BUILDER)}; nothing can be counted")
    found = Inventory()
    memory: dict[tuple[str, str], bool] = {ROOT_BUILDER: True}
    for package in tree.packages:
        for file in tree.files(package):
            if b"Builder" not in file.read_bytes():
                continue
            module = tree.module_of(file)
            if module is not None:
                _collect(tree, module, package, memory, found)
    return found


def _collect(tree: Tree, module: Module, package: str, memory: dict[tuple[str, str], bool], found: Inventory) -> None:
    top_level = {id(node) for node in module.classes.values()}
    for node in ast.walk(module.syntax):
        if not isinstance(node, ast.ClassDef) or (module.name, node.name) == ROOT_BUILDER:
            continue
        nested = id(node) not in top_level
        base = _builder_base(tree, module, node, nested, memory)
        if base is None:
            if node.name.endswith("MetadataBuilder"):
                bases = ", ".join(ast.unparse(each) for each in node.bases)
                found.unjudged.append((module.path, node.lineno, node.name, bases))
            continue
        found.builders.append(_describe(tree, module, package, node, base, nested))


def _builder_base(
    tree: Tree, module: Module, node: ast.ClassDef, nested: bool, memory: dict[tuple[str, str], bool]
) -> ast.expr | None:
    for base in node.bases:
        inner = base.value if isinstance(base, ast.Subscript) else base
        target = _target(tree, module, inner)
        if target is not None and _is_builder(tree, target, memory):
            return base
        if nested and target is None and isinstance(inner, ast.Name) and "builder" in inner.id:
            return base
    return None


def _target(tree: Tree, module: Module, node: ast.expr) -> tuple[str, str] | None:
    if isinstance(node, ast.Name):
        return tree.resolve(module.name, node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        origin = module.imports.get(node.value.id)
        if origin is not None:
            name = origin[0] if origin[1] is None else f"{origin[0]}.{origin[1]}"
            return tree.resolve(name, node.attr)
    return None


def _is_builder(tree: Tree, target: tuple[str, str], memory: dict[tuple[str, str], bool]) -> bool:
    if target not in memory:
        memory[target] = False  # a class that is its own ancestor is none
        module = tree.module(target[0])
        if module is not None:
            node = module.classes[target[1]]
            memory[target] = _builder_base(tree, module, node, False, memory) is not None
    return memory[target]


def _describe(tree: Tree, module: Module, package: str, node: ast.ClassDef, base: ast.expr, nested: bool) -> Builder:
    inner = base.value if isinstance(base, ast.Subscript) else base
    target = _target(tree, module, inner)
    arguments = 0
    if isinstance(base, ast.Subscript):
        arguments = len(base.slice.elts) if isinstance(base.slice, ast.Tuple) else 1
    methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    init = methods.get("__init__")
    return Builder(
        package=package,
        module=module.name,
        path=module.path,
        line=node.lineno,
        end=node.end_lineno or node.lineno,
        name=node.name,
        base=ast.unparse(inner),
        arguments=arguments,
        direct=target == ROOT_BUILDER,
        nested=nested,
        dynamic_base=target is None,
        init_hint=None if init is None else _hint(init),
        hook_hints={name: _hint(methods[name]) or "" for name in _HOOKS if name in methods},
        re_annotation=_re_annotation(node),
        hatches=count_hatches(node, module.lines),
        parent=target,
    )


def _name(annotation: ast.expr | None) -> str:
    if annotation is None:
        return ""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return ast.unparse(annotation)


def _hint(function: ast.FunctionDef) -> str | None:
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        if argument.arg == _SPEC:
            return _name(argument.annotation)
    return None


def _re_annotation(node: ast.ClassDef) -> str | None:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id == _SPEC:
            return _name(each.annotation)
    return None
