"""Type parameters of generic builders in between: how many there are, and whether one more can be added."""

from __future__ import annotations

import re

from genericbuilders.migration.classes import ClassInfo
from genericbuilders.migration.evidence import find_evidence
from genericbuilders.migration.project import BuilderBase, Project

__all__ = ["no_parameter", "num_parameters", "parameter_name"]

_NAME = re.compile(r"[^\W\d]\w*")
_OURS = ("genericbuilders_vllm.base.SpecT", "genericbuilders.builder.SpecT")


def parameter_name(project: Project, module: str) -> str | None:
    """What a file calls this library's type variable for specs, if it has it."""
    imports = project.modules[module].imports
    return next((name for name, origins in imports.items() if origins and origins[0] in _OURS), None)


def no_parameter(project: Project, module: str, cls: ClassInfo, base: BuilderBase) -> str | None:
    """Why a class cannot be given a type parameter for its spec, behind those that it has; ``None`` if it can."""
    others = [each.text for index, each in enumerate(cls.bases) if index != base.index and each.arguments]
    if others:
        return f"it lists its parameters itself, or takes some from {', '.join(others)}"
    place = project.scopes(module).places.get(cls.line)
    if place is None or place.parameters:
        return "it declares its parameters behind its name"
    target = f"{module}.{cls.qualname}"
    number = num_parameters(project, target)
    for name, child in project.subclasses(target):
        found, above = find_evidence(project, name, child), project.base_of(name, child)
        if above is None or found is None or found.inherited or found.wide:
            continue
        if len(above.ref.arguments) != number:
            return f"{child.name} gives it {len(above.ref.arguments)} arguments, where it has {number}"
    if number == 0 and base.ref.arguments and _may_be_variable(project, module, base.ref.arguments[0]):
        return f"whether {base.ref.arguments[0]} is a type variable cannot be seen from here"
    return None


def num_parameters(project: Project, target: str) -> int:
    """The type parameters that a class of the files has, without that of its spec: those of its builder base."""
    found = project.class_of(target)
    base = None if found is None else project.base_of(*found)
    if found is None or base is None or not base.ref.arguments:
        return 0
    module, metadata = found[0], base.ref.arguments[0].strip("'\"")
    known = {word for word in _NAME.findall(metadata) if project.is_type_variable(module, word)}
    if known or not _is_foreign(project, module, metadata):
        return len(known)
    # Of a name from outside the files, the subclasses tell whether it is a parameter.
    given = [
        len(above.ref.arguments)
        for name, child in project.subclasses(target)
        if (above := project.base_of(name, child)) is not None
    ]
    filled = base.is_ours and len(base.ref.arguments) > 1
    return min(max(max(given, default=0) - filled, 0), 1)


def _is_foreign(project: Project, module: str, name: str) -> bool:
    target = project.resolve(module, name)
    return target is not None and project.class_of(target) is None


def _may_be_variable(project: Project, module: str, name: str) -> bool:
    """Whether a name from outside the files looks like a type variable's."""
    last = name.strip("'\"").rpartition(".")[2]
    return _is_foreign(project, module, name) and (len(last) <= 2 or last.endswith(("T", "_co", "_contra", "Var")))
