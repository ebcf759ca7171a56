"""What one file says about builders, read from its syntax: imports, classes, and what each class says of its spec."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from genericbuilders.migration.bindings import Names, dotted, read_names
from genericbuilders.migration.classes import ClassInfo, FunctionScope, describe_class
from genericbuilders.migration.source import Source

__all__ = ["Factory", "ModuleInfo", "absolute_module", "describe_module"]

_TYPE_CALL = re.compile(r"\btype\([^()]*,")
_INNER_CLASS = re.compile(r"^[ \t]+class\b", re.MULTILINE)
_MARKER = re.compile(r"#\s*genericbuilders:\s*spec\s*=\s*([\w.]+(?:\s*\|\s*[\w.]+)*)")


@dataclass(frozen=True)
class Factory:
    """A call that makes a class: ``type(name, bases, body)``.

    Attributes:
        name: the class's name, where it is written out.
        line: of the call.
        column: of the call, 1-based.
        bases: dotted names of its bases.
    """

    name: str
    line: int
    column: int
    bases: tuple[str, ...]


@dataclass(frozen=True)
class ModuleInfo:
    """One parsed file. Plain data, so that it can be handed to other processes.

    Attributes:
        name: dotted.
        is_package: whether the file is an ``__init__.py``.
        imports: local name to each place that it may come from, dotted; more than one where imports are conditional.
        checked_only: local names that are imported for checkers alone, under ``if TYPE_CHECKING``.
        stars: modules of which everything is imported.
        aliases: local name to the dotted name that it is assigned.
        unsure: those of them that are assigned more than once, or under a condition.
        classes: all classes, nested ones too, in order.
        factories: calls that make classes.
        type_variables: names that are assigned a ``TypeVar``.
        has_getters: whether a ``get_builder_cls`` is defined.
        metadata_asserts: whether an ``assert isinstance(attn_metadata, ...)`` stands in it.
    """

    name: str
    is_package: bool
    imports: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    checked_only: frozenset[str] = frozenset()
    stars: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    unsure: frozenset[str] = frozenset()
    classes: tuple[ClassInfo, ...] = ()
    factories: tuple[Factory, ...] = ()
    type_variables: frozenset[str] = frozenset()
    has_getters: bool = False
    metadata_asserts: bool = False


def describe_module(name: str, is_package: bool, text: str) -> ModuleInfo:
    """Read one file.

    Raises:
        SyntaxError: it does not parse.
    """
    # A declaration of the encoding is for bytes; this is text already.
    tree = ast.parse(text)
    reader = _Reader(name, is_package, _markers(text), tree, text)
    reader.makes_classes = _TYPE_CALL.search(text) is not None
    # Most files make no class inside a function, and most of a file is functions.
    reader.enters_functions = reader.makes_classes or _INNER_CLASS.search(text) is not None
    reader.read(tree.body, scope=None, prefix="", checked=False)
    return ModuleInfo(
        name,
        is_package,
        {local: tuple(dict.fromkeys(origins)) for local, origins in reader.imports.items()},
        frozenset(reader.checked - reader.at_run_time),
        tuple(reader.stars),
        reader.aliases,
        frozenset(name for name in reader.unsure if name in reader.aliases),
        tuple(reader.classes),
        tuple(reader.factories),
        frozenset(reader.type_variables),
        "get_builder_cls" in text,
        "isinstance(attn_metadata," in text.replace(" ", ""),
    )


def _markers(text: str) -> dict[int, str]:
    if "genericbuilders:" not in text:
        return {}
    found: dict[int, str] = {}
    for number, line in enumerate(Source(text).lines, 1):
        match = _MARKER.search(line)
        if match is not None:
            found[number] = match[1]
    return found


class _Reader:
    """Walks statements, in functions and conditions too."""

    def __init__(self, name: str, is_package: bool, markers: dict[int, str], tree: ast.Module, text: str) -> None:
        self.tree = tree
        self.text = text
        self.reads_specs = "Spec" in text or "kv_cache_spec" in text
        self.makes_classes = False
        self.enters_functions = True
        self.name = name
        self.is_package = is_package
        self.markers = markers
        self.imports: dict[str, list[str]] = {}
        self.checked: set[str] = set()
        self.at_run_time: set[str] = set()
        self.stars: list[str] = []
        self.aliases: dict[str, str] = {}
        self.assigned: set[str] = set()
        self.unsure: set[str] = set()
        self.classes: list[ClassInfo] = []
        self.factories: list[Factory] = []
        self.type_variables: set[str] = set()
        self.conditions = 0

    @cached_property
    def names(self) -> Names:
        """What the file's names mean; most files need not know."""
        return read_names(self.tree)

    @cached_property
    def source(self) -> Source:
        """The file's lines."""
        return Source(self.text)

    def read(self, body: Iterable[ast.stmt], scope: FunctionScope | None, prefix: str, checked: bool) -> None:
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node, checked)
            elif isinstance(node, ast.ClassDef):
                names = self.names if self.reads_specs and node.bases else None
                self.classes.append(describe_class(node, prefix, scope, self._marker(node), self.source, names))
                self.read(node.body, scope, f"{prefix}{node.name}.", checked)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if not self.enters_functions:
                    continue
                arguments = node.args
                taken = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
                inner = FunctionScope(frozenset(taken | (scope.names if scope else frozenset())))
                self.read(node.body, inner, f"{prefix}{node.name}.<locals>.", checked)
            else:
                self._simple(node, scope, at_top=not prefix)
                self.conditions += 1
                for part, only_checked in _parts(node):
                    self.read(part, scope, prefix, checked or only_checked)
                self.conditions -= 1

    def _marker(self, node: ast.ClassDef) -> str | None:
        """The marker in the class's header, which may take several lines."""
        header = range(node.lineno, max(node.lineno + 1, node.body[0].lineno))
        return next((self.markers[line] for line in header if line in self.markers), None)

    def _import(self, node: ast.Import | ast.ImportFrom, checked: bool) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                self._bind(local, alias.name if alias.asname else local, checked)
            return
        module = absolute_module(self.name, self.is_package, node)
        for alias in node.names:
            if alias.name == "*":
                self.stars.append(module)
            else:
                self._bind(alias.asname or alias.name, f"{module}.{alias.name}", checked)

    def _bind(self, local: str, origin: str, checked: bool) -> None:
        self.imports.setdefault(local, []).append(origin)
        (self.checked if checked else self.at_run_time).add(local)

    def _simple(self, node: ast.stmt, scope: FunctionScope | None, *, at_top: bool) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            target, value = node.targets[0].id, node.value
            if isinstance(value, ast.Call) and _last(value.func) == "TypeVar":
                self.type_variables.add(target)
            elif scope is None and isinstance(value, ast.Name | ast.Attribute) and dotted(value):
                self.aliases[target] = dotted(value)
            if at_top and (self.conditions or target in self.assigned):
                self.unsure.add(target)
            if at_top:
                self.assigned.add(target)
        for call in _calls(node) if self.makes_classes else ():
            if isinstance(call.func, ast.Name) and call.func.id == "type" and len(call.args) == 3:
                self.factories.append(_factory(call))


def absolute_module(name: str, is_package: bool, node: ast.ImportFrom) -> str:
    """The module from which a statement in the module ``name`` imports, dotted."""
    if not node.level:
        return node.module or ""
    package = name.split(".") if is_package else name.split(".")[:-1]
    parts = package[: len(package) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)


def _factory(call: ast.Call) -> Factory:
    name, bases = call.args[0], call.args[1]
    names = [dotted(each) for each in bases.elts] if isinstance(bases, ast.Tuple) else []
    made = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else "type(...)"
    return Factory(made, call.lineno, call.col_offset + 1, tuple(filter(None, names)))


def _parts(node: ast.stmt) -> Iterator[tuple[Sequence[ast.stmt], bool]]:
    """The statements inside a compound one, and whether only checkers see them."""
    if isinstance(node, ast.If):
        yield node.body, _last(node.test) == "TYPE_CHECKING"
        yield node.orelse, False
    elif isinstance(node, ast.Try | ast.TryStar):
        for part in (node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody):
            yield part, False
    elif isinstance(node, ast.With | ast.AsyncWith):
        yield node.body, False
    elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
        yield node.body, False
        yield node.orelse, False
    elif isinstance(node, ast.Match):
        for case in node.cases:
            yield case.body, False


def _calls(node: ast.stmt) -> Iterator[ast.Call]:
    """Calls in a simple statement; those in a compound one come with its parts."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return):
        for each in ast.walk(node):
            if isinstance(each, ast.Call):
                yield each


def _last(node: ast.expr) -> str:
    return dotted(node).rpartition(".")[2]
