"""How a spec is written in a class: which names can stand there, which have to be imported, which cannot be written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from genericbuilders.migration.known_builders import SPEC_PARENTS
from genericbuilders.migration.project import Project
from genericbuilders.migration.scopes import Bound, Kind, ModuleScopes, Place

__all__ = ["SPEC_MODULE", "Names", "UnnameableError", "Written"]

SPEC_MODULE = "vllm.v1.kv_cache_interface"
_SPECS = frozenset({*SPEC_PARENTS, *SPEC_PARENTS.values()})
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_UNION = re.compile(r"(?:\w+\.)*Union\[(.*)\]", re.DOTALL)


class UnnameableError(Exception):
    """A spec cannot be written where it would have to stand, and why."""


@dataclass(frozen=True)
class Written:
    """A spec as code.

    Attributes:
        code: the code.
        imports: modules and names that it needs besides.
        moved: those of the names that checkers alone imported before.
    """

    code: str
    imports: frozenset[tuple[str, str]] = frozenset()
    moved: frozenset[str] = frozenset()


@dataclass
class _Parts:
    imports: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    moved: set[str] = field(default_factory=set[str])
    quoted: bool = False


class Names:
    """The names that a class of a file can use."""

    def __init__(self, project: Project, module: str, line: int) -> None:
        self._project = project
        self._module = module
        self._scopes: ModuleScopes = project.scopes(module)
        # A class in a statement that nothing looks into sees nothing for certain.
        self._place: Place = self._scopes.places.get(line, Place({}, {}, frozenset(), 0))

    def write(self, spec: str, *, in_bases: bool) -> Written:
        """A spec as code.

        Args:
            spec: its classes, as this file or one of its bases' would write them.
            in_bases: whether it stands among the class's bases, and not in its body.

        Raises:
            UnnameableError: it cannot be written there.
        """
        found = _Parts()
        visible = self._place.bases if in_bases else self._place.body
        text = " | ".join(self._part(part, visible, found, in_bases=in_bases) for part in _classes(spec))
        return Written(f'"{text}"' if found.quoted else text, frozenset(found.imports), frozenset(found.moved))

    def is_known(self, name: str, *, in_bases: bool = True) -> bool:
        """Whether Python finds a name there for certain."""
        return name.partition(".")[0] in (self._place.bases if in_bases else self._place.body)

    def is_findable(self, name: str) -> bool:
        """Whether checkers find a name there that is quoted: it is bound for certain, or at the module's own level."""
        head = name.partition(".")[0]
        return self.is_known(name) or (head not in self._place.hidden and self._scopes.is_of_module(head))

    def is_free(self, name: str, origin: str) -> bool:
        """Whether the module's level binds a name to nothing but ``origin``, so that it can be imported."""
        return all(each.origins == (origin,) for each in self._scopes.anywhere.get(name, ()))

    def _part(self, part: str, visible: Mapping[str, Bound], found: _Parts, *, in_bases: bool) -> str:
        if _DOTTED.fullmatch(part) is None:
            raise UnnameableError(f"{part} is no name of a class")
        head, last = part.partition(".")[0], part.rpartition(".")[2]
        bound = visible.get(head)
        if bound is not None:
            self._check(part, bound)
            return part
        if head in self._place.hidden:
            raise UnnameableError(f"a function around the class binds {head}, but not for certain before the class")
        anywhere = self._scopes.anywhere.get(head, ())
        if not anywhere:
            return self._vllms(part, last, found)
        for each in anywhere:
            self._check(part, each)
        origins = {origin for each in anywhere for origin in each.origins}
        if in_bases and part == head and all(each.kind is Kind.IMPORT for each in anywhere) and len(origins) == 1:
            module, _, name = next(iter(origins)).rpartition(".")
            if name == head and self._may_be_imported(module):
                found.imports.add((module, name))
                found.moved.add(name)
                return part
        found.quoted = True
        return part

    def _check(self, part: str, bound: Bound) -> None:
        head = part.partition(".")[0]
        if bound.kind is Kind.TYPE_VARIABLE or self._project.is_type_variable(self._module, part):
            raise UnnameableError(f"{part} is a type variable, which has no one spec; the classes below it may be told")
        if not bound.may_be_class:
            raise UnnameableError(f"{head} is no class that an import or a class statement names")

    def _vllms(self, part: str, last: str, found: _Parts) -> str:
        """One of vLLM's own specs, which can be imported from there."""
        if last not in _SPECS or part not in (last, f"{SPEC_MODULE}.{last}"):
            raise UnnameableError(f"this file binds no {part.partition('.')[0]}, and vLLM has no such spec")
        found.imports.add((SPEC_MODULE, last))
        return last

    def _may_be_imported(self, module: str) -> bool:
        """Whether a module that checkers alone imported can be imported by a run, without a circle or a failure."""
        return module == SPEC_MODULE or (module.startswith("vllm.") and not self._module.startswith("vllm."))


def _classes(spec: str) -> Iterator[str]:
    """The classes of a union, however it is written."""
    text = spec.strip()
    union = _UNION.fullmatch(text)
    for part in text.split("|") if union is None else union[1].split(","):
        if part.strip():
            yield part.strip().strip("'\"")
