"""Which spec a builder takes, and what tells so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from genericbuilders.migration.classes import ClassInfo
from genericbuilders.migration.known_builders import KNOWN_BUILDERS, OLD_ROOTS
from genericbuilders.migration.project import Project

__all__ = ["Evidence", "find_evidence", "is_wide", "last_names"]

WIDE = ("KVCacheSpec", "Any", "object")
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
        return is_wide(self.spec)


def find_evidence(project: Project, module: str, cls: ClassInfo) -> Evidence | None:
    """What tells which spec ``cls`` takes, the most trusted first; ``None`` if nothing does."""
    if cls.marker is not None:
        return Evidence(cls.marker, f"marker (line {cls.line})")
    states = sorted(cls.fields & STATE_FIELDS)
    inherited = _inherited(project, module, cls)
    for found in _said(cls):
        false = _contradiction(project, module, cls, found, states, inherited)
        if false is not None:
            return Evidence(false[0], f"{false[1]}, though the {found.told_by} says {found.spec}", found.told_by)
        return found
    if inherited is not None:
        return inherited
    if cls.hook is not None and cls.hook.annotation is not None and not is_wide(cls.hook.annotation):
        return Evidence(
            cls.hook.annotation, f"hint of {cls.hook.parameter} in get_cudagraph_support (line {cls.hook.line})"
        )
    if states:
        return Evidence("MambaSpec", f"fields read: {', '.join(states)}")
    window = sorted(cls.fields & WINDOW_FIELDS)
    if window:
        return Evidence("SlidingWindowSpec", f"fields read: {', '.join(window)}")
    attention = sorted(cls.fields & ATTENTION_FIELDS)
    if attention:
        return Evidence("AttentionSpec", f"fields read: {', '.join(attention)}")
    for hint in (cls.annotation, cls.init):
        if hint is not None and hint.annotation is not None and is_wide(hint.annotation):
            return Evidence("KVCacheSpec", f"hint of kv_cache_spec (line {hint.line}), and no field of a narrower spec")
    return None


def is_wide(spec: str) -> bool:
    """Whether a hint says no more than that there is a spec."""
    return set(last_names(spec)) <= set(WIDE)


def last_names(spec: str) -> tuple[str, ...]:
    """The classes of a union, without their modules."""
    text = spec.strip()
    for front in ("Union[", "typing.Union["):
        if text.startswith(front):
            text = text[len(front) : -1].replace(",", "|")
    return tuple(part.strip().rpartition(".")[2] for part in text.split("|"))


def _said(cls: ClassInfo) -> Iterator[Evidence]:
    for hint, where in ((cls.annotation, "class-level annotation of"), (cls.init, "hint in __init__ of")):
        if hint is not None and hint.annotation is not None and not is_wide(hint.annotation):
            yield Evidence(hint.annotation, f"{where} {hint.parameter} (line {hint.line})")
    for check in cls.checks:
        if check.demanded:
            yield Evidence(" | ".join(check.classes), f"assert or raise unless isinstance (line {check.line})")


def _inherited(project: Project, module: str, cls: ClassInfo) -> Evidence | None:
    base = project.base_of(module, cls)
    if base is None or base.is_root or base.is_dynamic:
        return None
    if base.target in OLD_ROOTS:
        return None
    if base.is_ours:
        return (
            Evidence(base.ref.arguments[1].strip("'\""), "its base's own argument")
            if len(base.ref.arguments) > 1
            else None
        )
    found = project.class_of(base.target)
    if found is None:
        known = KNOWN_BUILDERS.get(base.target)
        return None if known is None else Evidence(known, f"its base {base.ref.name}, which is vLLM's", inherited=True)
    told = find_evidence(project, *found)
    return None if told is None else Evidence(told.spec, f"its base {base.ref.name}: {told.told_by}", inherited=True)


def _contradiction(
    project: Project, module: str, cls: ClassInfo, found: Evidence, states: list[str], inherited: Evidence | None
) -> tuple[str, str] | None:
    """The right spec and what tells it, where a hint cannot be true."""
    for check in cls.checks:
        asked = {name for each in check.classes for name in last_names(each)}
        if check.demanded and not _related(project, module, asked, set(last_names(found.spec))):
            return " | ".join(check.classes), f"assert or raise unless isinstance (line {check.line})"
    if any("MambaSpec" in project.ancestors(module, name) for name in last_names(found.spec)):
        return None
    if states:
        return "MambaSpec", f"fields read: {', '.join(states)}"
    if inherited is not None and not _related(
        project, module, set(last_names(inherited.spec)), set(last_names(found.spec))
    ):
        return inherited.spec, inherited.told_by
    return None


def _related(project: Project, module: str, asked: set[str], said: set[str]) -> bool:
    """Whether a spec can be of both: one's class derives from the other's."""
    up = {name: set(project.ancestors(module, name)) for name in asked | said}
    return any(a in up[b] or b in up[a] for a in asked for b in said)
