"""What the classes below a builder that says nothing of its spec agree on."""

from __future__ import annotations

from collections.abc import Iterator

from genericbuilders.migration.classes import ClassInfo
from genericbuilders.migration.evidence import Evidence, find_evidence
from genericbuilders.migration.project import Project
from genericbuilders.migration.spec_names import identities, translated

__all__ = ["agreed_below"]


def agreed_below(project: Project, module: str, cls: ClassInfo) -> tuple[Evidence | None, str | None]:
    """The spec that all classes below take, and how those right below differ, if they do.

    All are asked, however deep. One that takes any spec, or the last of a line of which nothing says what it takes,
    leaves it open; so does a difference further down, where no class between could hand a parameter on.
    """
    told: list[tuple[ClassInfo, str, Evidence, bool]] = []
    open_ = False
    for child_module, child, direct in _below(project, module, cls):
        found = find_evidence(project, child_module, child)
        if found is None:
            open_ = open_ or not project.subclasses(f"{child_module}.{child.qualname}")
        elif not found.inherited:
            open_ = open_ or found.wide
            told += [] if found.wide else [(child, child_module, found, direct)]
    kinds = {identities(project, where, found.spec) for _, where, found, _ in told}
    if len(kinds) > 1:
        if not all(direct for *_, direct in told):
            return None, None
        return None, f"its subclasses differ ({', '.join(f'{each.name}: {found.spec}' for each, _, found, _ in told)})"
    if open_ or not told:
        return None, None
    child, where, found, _ = told[0]
    spec = translated(project, where, module, found.spec)
    return None if spec is None else Evidence(spec, f"its subclass {child.name}: {found.told_by}"), None


def _below(project: Project, module: str, cls: ClassInfo) -> Iterator[tuple[str, ClassInfo, bool]]:
    """All builders below a class, and whether it is their base."""
    seen = {(module, cls.qualname)}
    pending = [(*child, True) for child in project.subclasses(f"{module}.{cls.qualname}")]
    while pending:
        where, each, direct = pending.pop(0)
        if (where, each.qualname) in seen:
            continue
        seen.add((where, each.qualname))
        yield where, each, direct
        pending += [(*child, False) for child in project.subclasses(f"{where}.{each.qualname}")]
