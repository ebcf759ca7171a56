"""All files of a run together: which names mean which classes, and which classes are builders."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from genericbuilders.migration.classes import SPEC, BaseRef, ClassInfo
from genericbuilders.migration.known_builders import KNOWN_BUILDERS, OLD_ROOTS, OUR_ROOTS, VLLM_ROOTS
from genericbuilders.migration.modules import ModuleInfo, describe_module
from genericbuilders.migration.scopes import ModuleScopes, read_scopes

__all__ = ["BuilderBase", "Project"]

_MAX_DEPTH = 24
# By their own names: those of dataclasses, attrs and pydantic, and of what wraps them under such a name. One too many
# leaves an annotation to its author; one too few would change a constructor.
_FIELD_MAKERS = frozenset({"dataclass", "pydantic_dataclass", "define", "mutable", "frozen", "attrs", "s"})
_READERS = ("__annotations__", "get_type_hints", "get_annotations")


@dataclass(frozen=True)
class BuilderBase:
    """The base through which a class is a builder.

    Attributes:
        index: its place among the bases.
        ref: as written.
        target: the qualified name of the class; empty where it is known at run time only.
    """

    index: int
    ref: BaseRef
    target: str

    @property
    def is_root(self) -> bool:
        """Whether it is vLLM's own base of all builders."""
        return self.target in VLLM_ROOTS

    @property
    def is_ours(self) -> bool:
        """Whether it is this library's."""
        return self.target in OUR_ROOTS

    @property
    def is_dynamic(self) -> bool:
        """Whether it is a value that only a run knows."""
        return not self.target


@dataclass(frozen=True)
class Project:
    """The files of a run. Plain data, so that it can be handed to other processes, once for each.

    Attributes:
        modules: by dotted name.
        texts: each file's text.
        names: each file's dotted module name.
        unparsed: files that do not parse, and why.
        siblings: for each loose file, the modules of its folder's files by their names.
    """

    modules: Mapping[str, ModuleInfo]
    texts: Mapping[Path, str]
    names: Mapping[Path, str]
    unparsed: Mapping[Path, str]
    siblings: Mapping[str, Mapping[str, str]]
    _resolved: dict[tuple[str, str], str | None] = field(
        default_factory=dict[tuple[str, str], "str | None"], repr=False
    )
    _bases: dict[str, BuilderBase | None] = field(default_factory=dict[str, "BuilderBase | None"], repr=False)
    _ancestors: dict[str, list[tuple[str, ClassInfo]]] = field(
        default_factory=dict[str, "list[tuple[str, ClassInfo]]"], repr=False
    )
    _trees: dict[str, ast.Module] = field(default_factory=dict[str, ast.Module], repr=False)
    _scopes: dict[str, ModuleScopes] = field(default_factory=dict[str, ModuleScopes], repr=False)

    @classmethod
    def read(cls, files: Mapping[Path, str]) -> Project:
        """Parse all ``files``: absolute paths, and their texts."""
        packages = {path.parent for path in files if path.name == "__init__.py"}
        modules: dict[str, ModuleInfo] = {}
        names: dict[Path, str] = {}
        unparsed: dict[Path, str] = {}
        with _collecting_nothing():
            for path, text in files.items():
                name = _module_name(path, packages)
                try:
                    module = describe_module(name, path.name == "__init__.py", text)
                except (SyntaxError, ValueError, RecursionError) as error:
                    line = getattr(error, "lineno", None)
                    unparsed[path] = f"{getattr(error, 'msg', error)}{f', line {line}' if line else ''}"
                    continue
                # Loose files of one name in different folders: each is looked at, none hides the other.
                unique = name if name not in modules else f"{name}@{path}"
                names[path] = unique
                modules[unique] = module
        loose: dict[Path, dict[str, str]] = {}
        for path, name in names.items():
            if path.parent not in packages:
                loose.setdefault(path.parent, {})[path.stem] = name
        siblings = {name: loose[path.parent] for path, name in names.items() if path.parent in loose}
        return cls(modules, files, names, unparsed, siblings)

    def text(self, module: str) -> str:
        """A file's text."""
        return self.texts[self._paths[module]]

    def tree(self, module: str) -> ast.Module:
        """A file's syntax, read once."""
        if module not in self._trees:
            self._trees[module] = ast.parse(self.text(module))
        return self._trees[module]

    def scopes(self, module: str) -> ModuleScopes:
        """A file's names, read once."""
        if module not in self._scopes:
            self._scopes[module] = read_scopes(self.tree(module), module, self.modules[module].is_package)
        return self._scopes[module]

    def is_read_elsewhere(self, module: str, name: str) -> bool:
        """Whether another file imports ``name`` from ``module``, or seems to read it there as an attribute."""
        own = module.partition("@")[0]
        whole = f"{own}.{name}"
        if any(whole in each.imports.get(name, ()) or own in each.stars for each in self.modules.values()):
            return True
        read = re.compile(rf"\.\s*{name}\b|[\"']{name}[\"']")
        if any(other != module and read.search(self.text(other)) for other in self._importers.get(own, ())):
            return True
        return any(other != module and whole in self.text(other) for other in self._patching)

    def is_type_variable(self, module: str, name: str, depth: int = 0) -> bool:
        """Whether what ``module`` calls ``name`` is known to be a type variable, of these files or this library."""
        info = self.modules.get(module)
        if info is None or depth > _MAX_DEPTH:
            return False
        if name in info.type_variables:
            return True
        head, _, rest = name.partition(".")
        for origin in info.imports.get(head, ()):
            whole = self._from_sibling(module, f"{origin}.{rest}" if rest else origin)
            front, _, last = whole.rpartition(".")
            if self.is_type_variable(front, last, depth + 1):
                return True
        return False

    def relevant(self) -> Sequence[Path]:
        """The files in which something could change, or has to be told."""
        return [
            path
            for path, name in self.names.items()
            if any(self.is_interesting(name, each) for each in self.modules[name].classes)
            or self.modules[name].has_getters
            or self.modules[name].metadata_asserts
            or any(self.factory_base(name, factory.bases) for factory in self.modules[name].factories)
        ]

    def is_interesting(self, module: str, cls: ClassInfo) -> bool:
        """Whether a class is a builder, or looks like one."""
        return self.base_of(module, cls) is not None or looks_like_builder(cls)

    def makes_fields(self, module: str, cls: ClassInfo) -> bool:
        """Whether a decorator makes a field of each annotation of the class, as `dataclasses.dataclass` does."""
        return any(
            (self.resolve(module, name) or name).rpartition(".")[2] in _FIELD_MAKERS
            or name.rpartition(".")[2] in _FIELD_MAKERS
            for name in cls.decorators
        )

    def reads_annotations(self, module: str, cls: ClassInfo) -> bool:
        """Whether code in a class's file, or in that of a class above it, may read annotations at run time."""
        files = {module, *(name for name, _ in self.above(module, cls))}
        return any(word in self.text(name) for name in files for word in _READERS)

    def factory_base(self, module: str, bases: Sequence[str]) -> str | None:
        """The builder among the bases of a class that a call makes."""
        return next(
            (target for name in bases if (target := self.resolve(module, name)) and self._is_builder(target)), None
        )

    def base_of(self, module: str, cls: ClassInfo) -> BuilderBase | None:
        """The base through which a class is a builder; ``None`` if it is none."""
        key = f"{module}:{cls.qualname}:{cls.line}"
        if key not in self._bases:
            self._bases[key] = None  # a class that is its own ancestor is none
            self._bases[key] = self._find_base(module, cls)
        return self._bases[key]

    def resolve(self, module: str, name: str, depth: int = 0) -> str | None:
        """The qualified name of what ``module`` calls ``name``: of a class in the files, or as it was imported."""
        key = (module, name)
        if key not in self._resolved:
            self._resolved[key] = None
            self._resolved[key] = self._resolve(module, name, depth) if depth < _MAX_DEPTH else None
        return self._resolved[key]

    def is_root(self, module: str, origin: str) -> bool:
        """Whether a dotted name from anywhere, imported in ``module``, is vLLM's base of all builders."""
        return self._follow(self._from_sibling(module, origin), 0) in VLLM_ROOTS

    def above(self, module: str, cls: ClassInfo) -> Sequence[tuple[str, ClassInfo]]:
        """All classes of the files above one, nearest first."""
        key = f"{module}:{cls.qualname}:{cls.line}"
        if key in self._ancestors:
            return self._ancestors[key]
        found = self._ancestors.setdefault(key, [])
        waiting = [(module, cls)]
        while waiting:
            name, each = waiting.pop(0)
            for ref in each.bases:
                target = self.resolve(name, ref.name) if ref.name else None
                base = None if target is None else self.class_of(target)
                if base is not None and base not in found:
                    found.append(base)
                    waiting.append(base)
        return found

    def is_base(self, target: str) -> bool:
        """Whether a qualified name is that of a base of all builders, vLLM's or this library's."""
        return target in VLLM_ROOTS or target in OUR_ROOTS or target in OLD_ROOTS

    def overridden(self, module: str, cls: ClassInfo, method: str) -> Sequence[tuple[str, ClassInfo]]:
        """The classes above one, in the files, that define a method too, nearest first."""
        return [above for above in self.above(module, cls) if method in above[1].methods]

    def overriders(self, module: str, cls: ClassInfo, method: str) -> Sequence[tuple[str, ClassInfo]]:
        """The classes below one, in the files, that define a method too."""
        return [
            (name, each)
            for name, info in self.modules.items()
            if info.has_getters or method != "get_builder_cls"
            for each in info.classes
            if method in each.methods and each is not cls and (module, cls) in self.above(name, each)
        ]

    def class_of(self, qualified: str) -> tuple[str, ClassInfo] | None:
        """The module and class of a qualified name, if the class is in the files."""
        return self._by_name.get(qualified)

    def subclasses(self, qualified: str) -> Sequence[tuple[str, ClassInfo]]:
        """The builders in the files whose builder base is ``qualified``."""
        return self._children.get(qualified, ())

    @cached_property
    def _paths(self) -> Mapping[str, Path]:
        return {name: path for path, name in self.names.items()}

    @cached_property
    def _importers(self) -> Mapping[str, Sequence[str]]:
        """By module, the files that import it as a whole, or a package that it is in."""
        found: dict[str, list[str]] = {}
        for name, module in self.modules.items():
            for origin in {origin for origins in module.imports.values() for origin in origins}:
                found.setdefault(origin, []).append(name)
        every: dict[str, list[str]] = {}
        for name in self.modules:
            parts = name.partition("@")[0].split(".")
            every[".".join(parts)] = [
                each for end in range(1, len(parts) + 1) for each in found.get(".".join(parts[:end]), ())
            ]
        return every

    @cached_property
    def _patching(self) -> Sequence[str]:
        """The files that may reach names of others by strings."""
        words = ("patch", "setattr", "import_module")
        return [name for path, name in self.names.items() if any(word in self.texts[path] for word in words)]

    @cached_property
    def _by_name(self) -> Mapping[str, tuple[str, ClassInfo]]:
        found: dict[str, tuple[str, ClassInfo]] = {}
        for name, module in self.modules.items():
            for each in module.classes:
                found[f"{name}.{each.qualname}"] = (name, each)
        return found

    @cached_property
    def _children(self) -> Mapping[str, Sequence[tuple[str, ClassInfo]]]:
        found: dict[str, list[tuple[str, ClassInfo]]] = {}
        for name, module in self.modules.items():
            for each in module.classes:
                base = self.base_of(name, each)
                if base is not None and base.target:
                    found.setdefault(base.target, []).append((name, each))
        return found

    def _find_base(self, module: str, cls: ClassInfo) -> BuilderBase | None:
        dynamic: BuilderBase | None = None
        for index, ref in enumerate(cls.bases):
            if not ref.name:
                continue
            target = self.resolve(module, ref.name)
            if target is not None and self._is_builder(target):
                return BuilderBase(index, ref, target)
            if cls.scope is not None and target is None and (looks_like_builder(cls) or cls.builds_batches):
                dynamic = BuilderBase(index, ref, "")
        return dynamic

    def _is_builder(self, target: str) -> bool:
        if target in VLLM_ROOTS or target in OUR_ROOTS or target in OLD_ROOTS or target in KNOWN_BUILDERS:
            return True
        found = self.class_of(target)
        return found is not None and self.base_of(*found) is not None

    def _resolve(self, module: str, name: str, depth: int) -> str | None:
        info = self.modules.get(module)
        if info is None:
            return None
        if (whole := f"{module}.{name}") in self._by_name:
            return whole
        head, _, rest = name.partition(".")
        behind = f".{rest}" if rest else ""
        if head in info.aliases and info.aliases[head] != name:
            return self.resolve(module, info.aliases[head] + behind, depth + 1)
        found: str | None = None
        for origin in info.imports.get(head, ()):
            target = self._follow(self._from_sibling(module, origin + behind), depth)
            # Of conditional imports, the one that leads to a builder counts.
            if target is not None and (found is None or self._known(target)):
                found = target
        if found is not None or head in info.imports:
            return found
        for star in info.stars:
            target = self._follow(f"{star}.{name}", depth)
            if target is not None and self._known(target):
                return target
        return None

    def _from_sibling(self, module: str, origin: str) -> str:
        """A name from a loose file of the same folder, by that file's own name."""
        head, _, rest = origin.partition(".")
        sibling = self.siblings.get(module, {}).get(head)
        return origin if sibling is None or not rest else f"{sibling}.{rest}"

    def _known(self, target: str) -> bool:
        roots = (*VLLM_ROOTS, *OUR_ROOTS, *OLD_ROOTS)
        return target in roots or target in KNOWN_BUILDERS or target in self._by_name

    def _follow(self, origin: str, depth: int) -> str | None:
        """A dotted name from anywhere: through the module of the files that holds it, or as it stands."""
        if origin in self._by_name:
            return origin
        module = origin.rpartition(".")[0]
        while module:
            if module in self.modules:
                return self.resolve(module, origin[len(module) + 1 :], depth + 1)
            module = module.rpartition(".")[0]
        return origin


def looks_like_builder(cls: ClassInfo) -> bool:
    """Whether a class without a known base has what a builder has: a spec at construction, and ``build``."""
    given = cls.init is not None and cls.init.parameter == SPEC
    return "build" in cls.methods and (given or cls.old_engine or cls.hook is not None)


@contextmanager
def _collecting_nothing() -> Generator[None, None, None]:
    """Syntax trees are many objects without cycles: looking for those takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _module_name(path: Path, packages: set[Path]) -> str:
    parts = [] if path.name == "__init__.py" else [path.stem]
    folder = path.parent
    while folder in packages:
        parts.append(folder.name)
        folder = folder.parent
    return ".".join(reversed(parts)) or path.stem
