"""Which spec a builder takes, and what tells so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from genericbuilders.migration.classes import ClassInfo, Hint
from genericbuilders.migration.known_builders import KNOWN_BUILDERS, OLD_ROOTS
from genericbuilders.migration.project import Project
from genericbuilders.migration.spec_names import (
    identities,
    is_known,
    is_spec,
    is_wide,
    lineage,
    members,
    name_of,
    translated,
    unrelated,
    vllms,
)
from genericbuilders.migration.spec_uses import Check

__all__ = ["Evidence", "assigned", "doubt", "find_evidence", "init_of"]

WIDE = "KVCacheSpec"
# Attributes that only states have, and attributes that only attention has.
WINDOW_FIELDS = frozenset({"extra_retained_tokens"})
STATE_FIELDS = frozenset({"shapes", "dtypes", "mamba_type", "mamba_cache_mode", "num_speculative_blocks"})
ATTENTION_FIELDS = frozenset({"num_kv_heads", "head_size", "head_size_v", "dtype", "kv_quant_mode", "sliding_window"})


@dataclass(frozen=True)
class Evidence:
    """What is known of a builder's spec.

    Attributes:
        spec: the spec, as its file would write it.
        told_by: what tells so, and where.
        false_hint: a hint that contradicts it.
        inherited: whether it comes from the base, so that the class need not say it.
    """

    spec: str
    told_by: str
    false_hint: str | None = None
    inherited: bool = False

    @property
    def wide(self) -> bool:
        """Whether any spec is taken."""
        return self.spec == WIDE


def find_evidence(project: Project, module: str, cls: ClassInfo) -> Evidence | None:
    """What tells which spec ``cls`` takes, the most trusted first; ``None`` if nothing does."""
    if cls.marker is not None:
        return Evidence(cls.marker, f"marker (line {cls.line})")
    inherited = _inherited(project, module, cls)
    demand = None if doubt(project, module, cls) is not None else _demand(project, module, cls)
    said = next(_hints(project, module, cls), demand)
    if said is not None:
        false = _contradiction(project, module, cls, said, demand, inherited)
        if false is not None:
            return Evidence(false.spec, f"{false.told_by}, though the {said.told_by} says {said.spec}", said.told_by)
        return said
    if inherited is not None:
        return inherited
    hook = cls.hook
    if (
        hook is not None
        and hook.annotation is not None
        and not is_wide(project, module, hook.annotation)
        and _is_meant(project, module, hook)
    ):
        return Evidence(hook.annotation, f"hint of {hook.parameter} in get_cudagraph_support (line {hook.line})")
    for kind, fields in (
        ("MambaSpec", STATE_FIELDS),
        ("SlidingWindowSpec", WINDOW_FIELDS),
        ("AttentionSpec", ATTENTION_FIELDS),
    ):
        found = _read(project, module, cls, kind, fields)
        if found is not None:
            return found
    for hint in (cls.annotation, init_of(project, module, cls)):
        if hint is not None and hint.annotation is not None and is_wide(project, module, hint.annotation):
            return Evidence(WIDE, f"hint of kv_cache_spec (line {hint.line}), and no field of a narrower spec")
    return None


def init_of(project: Project, module: str, cls: ClassInfo) -> Hint | None:
    """The spec's parameter of ``__init__``, unless that may be something else."""
    return cls.init if cls.init is not None and _is_meant(project, module, cls.init) else None


def assigned(project: Project, module: str, cls: ClassInfo) -> str | None:
    """Where the class, or one above it, gives ``self.kv_cache_spec`` anything but the constructor's parameter."""
    if cls.assigned is not None:
        return f"line {cls.assigned} gives self.kv_cache_spec something else than the constructor was given"
    base = project.base_of(module, cls)
    found = None if base is None else project.class_of(base.target)
    told = None if found is None else assigned(project, *found)
    return None if told is None or base is None else f"its base {base.ref.name}: {told}"


def doubt(project: Project, module: str, cls: ClassInfo) -> str | None:
    """Why what a class demands and reads says nothing of its spec, though it does either; ``None``: it says so."""
    if cls.asked is not None:
        return f"line {cls.asked} asks for the spec's type without demanding one, so that it may take several"
    demands = _demands(project, module, cls)
    if demands and _widest(project, module, demands) is None:
        told = " and ".join(f"{' | '.join(each.classes)} in line {each.line}" for each in demands)
        return f"it demands {told}"
    return None


def _hints(project: Project, module: str, cls: ClassInfo) -> Iterator[Evidence]:
    init = init_of(project, module, cls)
    if cls.annotation is None and assigned(project, module, cls) is not None:
        init = None
    for hint, where in ((cls.annotation, "class-level annotation of"), (init, "hint in __init__ of")):
        if hint is None or hint.annotation is None or is_wide(project, module, hint.annotation):
            continue
        if is_known(project, module, hint.annotation):
            yield Evidence(hint.annotation, f"{where} {hint.parameter} (line {hint.line})")


def _is_meant(project: Project, module: str, hint: Hint) -> bool:
    return hint.certain or (hint.annotation is not None and is_spec(project, module, hint.annotation))


def _demands(project: Project, module: str, cls: ClassInfo) -> list[Check]:
    """What is demanded of the spec; by the constructor alone, if it demands anything."""
    from_self = assigned(project, module, cls) is None
    from_init = from_self and init_of(project, module, cls) is not None
    found = [
        check
        for check in cls.checks
        if check.demanded
        and (from_self if check.of_self else from_init)
        and is_known(project, module, " | ".join(check.classes))
        and not is_wide(project, module, " | ".join(check.classes))
    ]
    return [check for check in found if check.constructs] or found


def _demand(project: Project, module: str, cls: ClassInfo) -> Evidence | None:
    found = _widest(project, module, _demands(project, module, cls))
    if found is None:
        return None
    return Evidence(" | ".join(found.classes), f"assert or raise unless isinstance (line {found.line})")


def _widest(project: Project, module: str, demands: Sequence[Check]) -> Check | None:
    """The demand that all others imply."""
    for check in demands:
        asked = identities(project, module, " | ".join(check.classes))
        if all(asked & lineage(project, module, name) for other in demands for name in other.classes):
            return check
    return None


def _read(project: Project, module: str, cls: ClassInfo, kind: str, fields: frozenset[str]) -> Evidence | None:
    """That a class reads fields which specs of one kind alone have."""
    if doubt(project, module, cls) is not None or assigned(project, module, cls) is not None:
        return None
    read = cls.self_fields
    if init_of(project, module, cls) is not None:
        read |= cls.parameter_fields
    named = name_of(project, module, kind) if read & fields else None
    return None if named is None else Evidence(named, f"fields read: {', '.join(sorted(read & fields))}")


def _inherited(project: Project, module: str, cls: ClassInfo) -> Evidence | None:
    base = project.base_of(module, cls)
    if base is None or base.is_root or base.is_dynamic:
        return None
    if base.target in OLD_ROOTS:
        return None
    if base.is_ours:
        if len(base.ref.arguments) < 2:
            return None
        given = base.ref.arguments[1].strip("'\"")
        return Evidence(WIDE if is_wide(project, module, given) else given, "its base's own argument")
    found = project.class_of(base.target)
    if found is None:
        known = KNOWN_BUILDERS.get(base.target)
        known = known and (name_of(project, module, known) or known)
        told = f"its base {base.ref.name}, which is vLLM's"
    else:
        above = find_evidence(project, *found)
        known = None if above is None else translated(project, found[0], module, above.spec) or above.spec
        told = "" if above is None else f"its base {base.ref.name}: {above.told_by}"
    return None if known is None else Evidence(known, told, inherited=True)


def _contradiction(
    project: Project, module: str, cls: ClassInfo, said: Evidence, demand: Evidence | None, inherited: Evidence | None
) -> Evidence | None:
    """The right spec and what tells it, where a hint cannot be true: both are specs of vLLM's own."""
    if doubt(project, module, cls) is not None:
        return None
    if demand is not None and unrelated(project, module, said.spec, demand.spec):
        return demand
    if any("MambaSpec" in lineage(project, module, each) for each in members(said.spec)):
        return None
    states = _read(project, module, cls, "MambaSpec", STATE_FIELDS)
    if states is not None and all(vllms(each) for each in identities(project, module, said.spec)):
        return states
    if inherited is not None and unrelated(project, module, inherited.spec, said.spec):
        return inherited
    return None
