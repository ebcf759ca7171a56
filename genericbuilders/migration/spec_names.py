"""Which class a spec's name means in a file: vLLM's own, by whatever name it was imported, or another."""

from __future__ import annotations

from collections.abc import Iterable

from genericbuilders.migration.known_builders import SPEC_PARENTS
from genericbuilders.migration.project import Project

__all__ = [
    "identities",
    "is_known",
    "is_spec",
    "is_wide",
    "lineage",
    "members",
    "name_of",
    "same_spec",
    "translated",
    "unrelated",
    "vllms",
]

_ROOT = "KVCacheSpec"
_WIDE = frozenset({_ROOT, "Any", "object", "typing.Any", "builtins.object"})
_HOMES = ("vllm.", "genericbuilders.", "genericbuilders_vllm.")
_UNKNOWN = "?."


def members(spec: str) -> tuple[str, ...]:
    """The classes of a union, as written."""
    return tuple(part.strip() for part in spec.split("|"))


def identities(project: Project, module: str, spec: str) -> frozenset[str]:
    """Which classes a union means: vLLM's own by their bare names, others by their qualified ones.

    What cannot be told starts with a question mark.
    """
    return frozenset(_identity(project, module, each) for each in members(spec))


def vllms(identity: str) -> bool:
    """Whether a class is one of vLLM's own specs."""
    return identity in SPEC_PARENTS or identity == _ROOT


def is_wide(project: Project, module: str, spec: str) -> bool:
    """Whether a hint says no more than that there is a spec."""
    return all(each in _WIDE or each.removeprefix(_UNKNOWN) in _WIDE for each in identities(project, module, spec))


def is_spec(project: Project, module: str, spec: str) -> bool:
    """Whether each class of a union is known to be a spec."""
    return all(_ROOT in lineage(project, module, each) for each in members(spec))


def is_known(project: Project, module: str, spec: str) -> bool:
    """Whether it is known of each class of a union where it comes from; all is open where a file imports all."""
    told = identities(project, module, spec)
    return bool(project.modules[module].stars) or not any(each.startswith(_UNKNOWN) for each in told)


def lineage(project: Project, module: str, name: str) -> frozenset[str]:
    """A class and all that it is known to derive from."""
    found: set[str] = set()
    pending = [(module, name)]
    while pending:
        module, name = pending.pop()
        identity = _identity(project, module, name)
        if identity in found:
            continue
        found.add(identity)
        parent = SPEC_PARENTS.get(identity)
        while parent is not None:
            found.add(parent)
            parent = SPEC_PARENTS.get(parent)
        own = None if vllms(identity) else project.class_of(identity)
        if own is not None:
            pending += [(own[0], base.name) for base in own[1].bases if base.name]
    return frozenset(found)


def unrelated(project: Project, module: str, first: str, second: str) -> bool:
    """Whether no spec can be of both unions: all are vLLM's own, and none derives from one of the other."""
    both = identities(project, module, first) | identities(project, module, second)
    if not all(vllms(each) for each in both):
        return False
    return not any(
        _identity(project, module, a) in lineage(project, module, b)
        or _identity(project, module, b) in lineage(project, module, a)
        for a in members(first)
        for b in members(second)
    )


def same_spec(project: Project, module: str, first: str, second: str) -> bool:
    """Whether two unions are of the same classes."""
    told = identities(project, module, first)
    return told == identities(project, module, second)


def translated(project: Project, source: str, target: str, spec: str) -> str | None:
    """A union as one file would write what another one writes; ``None`` if it has no name for it."""
    found = [name_of(project, target, _identity(project, source, each)) for each in members(spec)]
    return " | ".join(each for each in found if each is not None) if all(found) else None


def name_of(project: Project, module: str, identity: str) -> str | None:
    """The name that a file has for a class, or can import it by; ``None`` if another class is called so there."""
    last = identity.rpartition(".")[2]
    locals_: Iterable[str] = (last, *project.modules[module].imports)
    return next((name for name in locals_ if _identity(project, module, name) == identity), None)


def _identity(project: Project, module: str, name: str) -> str:
    target = project.resolve(module, name)
    last = name.rpartition(".")[2]
    if target is None:
        info = project.modules[module]
        head = name.partition(".")[0]
        bound = head in info.imports or head in info.aliases or any(each.name == head for each in info.classes)
        # A marker may name what is not imported yet.
        return last if vllms(last) and not bound else f"{_UNKNOWN}{name}"
    last = target.rpartition(".")[2]
    return last if vllms(last) and target.startswith(_HOMES) else target
