"""What is to be done with one class, and what is left and why: what both targets share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from genericbuilders.migration.classes import ClassInfo
from genericbuilders.migration.evidence import Evidence, assigned, doubt, find_evidence, init_of
from genericbuilders.migration.known_builders import OLD_ROOTS
from genericbuilders.migration.modules import ModuleInfo
from genericbuilders.migration.naming import Names, UnnameableError
from genericbuilders.migration.project import BuilderBase, Project
from genericbuilders.migration.result import ClassReport, Finding, Outcome
from genericbuilders.migration.source import Position
from genericbuilders.migration.spec_names import identities, is_wide, lineage, members, same_spec
from genericbuilders.migration.spec_uses import Check
from genericbuilders.migration.values import wide_value

__all__ = [
    "BASE_MODULE",
    "BASE_NAME",
    "COMMON_FIELDS",
    "SPEC_PARAMETER",
    "ClassPlan",
    "Planner",
    "leave",
    "refuse",
]

BASE_MODULE = "genericbuilders_vllm.base"
BASE_NAME = "AttentionMetadataBuilder"
SPEC_PARAMETER = "SpecT"
# What every spec has, so that a hook with a wide hint may read it.
COMMON_FIELDS = frozenset({"block_size", "page_size_bytes", "max_memory_usage_bytes", "copy_with_new_block_size"})


@dataclass(frozen=True)
class ClassPlan:
    """The changes to one class.

    Attributes:
        cls: the class.
        report: what is told of it.
        base_index: which base is replaced.
        base_arguments: its new type arguments, as code; ``None`` to leave it.
        new_root: whether that base becomes this library's.
        root_name: the dotted name by which the file calls vLLM's base.
        spec: what the class's spec is from here on.
        needless: where asserts stand that say no more than that.
        casts: where casts to that stand.
        drop_annotation: whether the class-level annotation goes.
        add_annotation: the class-level annotation to put in, as code.
        init_hint: the new hint of the spec in ``__init__``, as code.
        hook_hint: the same in ``get_cudagraph_support``.
        is_parameter: whether the spec that the base gets is a type variable, which subclasses fill.
        imports: names to import, each with its module.
        moved: those of them that only checkers imported before.
    """

    cls: ClassInfo
    report: ClassReport
    base_index: int = 0
    base_arguments: tuple[str, ...] | None = None
    new_root: bool = False
    root_name: str = ""
    spec: str | None = None
    needless: frozenset[Position] = frozenset()
    casts: frozenset[Position] = frozenset()
    drop_annotation: bool = False
    add_annotation: str | None = None
    init_hint: str | None = None
    hook_hint: str | None = None
    is_parameter: bool = False
    imports: frozenset[tuple[str, str]] = frozenset()
    moved: frozenset[str] = frozenset()


def leave(
    cls: ClassInfo, outcome: Outcome, rule: str | None = None, told: str = "", evidence: Evidence | None = None
) -> ClassPlan:
    """The plan that changes nothing."""
    findings = () if rule is None else (Finding(cls.line, cls.column, rule, told, changes=False),)
    spec, why = (None, None) if evidence is None else (evidence.spec, evidence.told_by)
    return ClassPlan(cls, ClassReport(cls.qualname, cls.line, outcome, spec, why, findings))


def refuse(project: Project, module: str, cls: ClassInfo, base: BuilderBase | None) -> ClassPlan | None:
    """The plan for a class that neither target can change; ``None`` if it can be."""
    reason = _refusal(project, module, cls, base)
    return None if reason is None else leave(cls, Outcome.REFUSED, *reason)


def _refusal(project: Project, module: str, cls: ClassInfo, base: BuilderBase | None) -> tuple[str, str] | None:
    if cls.old_engine or (base is not None and _is_old(project, base)):
        return "old-engine", "it is a builder of the engine before v1, whose constructor takes an input_builder"
    if base is None:
        return (
            "no-base",
            "it builds metadata from a kv_cache_spec but has no builder for a base; derive it from "
            f"{BASE_MODULE}.{BASE_NAME} to have its spec checked",
        )
    if base.is_dynamic:
        return (
            "dynamic-base",
            f"its base {base.ref.name} is a value that only a run knows; its spec is that of the class it is given",
        )
    head = base.ref.name.partition(".")[0]
    info = project.modules[module]
    origins = info.imports.get(head, ())
    stub = any(each.qualname == head for each in info.classes) or head in info.aliases
    if head in info.unsure or (head in info.aliases and any(each.qualname == head for each in info.classes)):
        return (
            "conditional-base",
            f"{head} is one of several, by a condition or by what ran last; two type arguments need one base at run "
            "time, so make the choice first",
        )
    if base.is_root and (len(origins) > 1 or (origins and stub)):
        return (
            "conditional-base",
            f"{head} comes from {' or '.join((*origins, *(('this file',) if stub else ())))}, by version; two type "
            "arguments need one base at run time, so make the choice first",
        )
    return None


def _is_old(project: Project, base: BuilderBase) -> bool:
    found = project.class_of(base.target)
    if found is None:
        return base.target in OLD_ROOTS
    above = project.base_of(*found)
    return found[1].old_engine or (above is not None and _is_old(project, above))


class Planner(ABC):
    """Works out the plan for one builder."""

    def __init__(self, project: Project, module: str, cls: ClassInfo, base: BuilderBase) -> None:
        self.project: Project = project
        self.module: str = module
        self.cls: ClassInfo = cls
        self.base: BuilderBase = base
        self.info: ModuleInfo = project.modules[module]
        self.evidence: Evidence | None = find_evidence(project, module, cls)
        self.names: Names = Names(project, module, cls.line)
        self.findings: list[Finding] = []
        self.imports: set[tuple[str, str]] = set()
        self.moved: set[str] = set()
        # Why a class-level annotation may neither come nor go.
        self.annotation_matters: str | None = None
        if project.makes_fields(module, cls):
            self.annotation_matters = "a decorator makes it a field, which its constructor takes"
        elif project.reads_annotations(module, cls):
            self.annotation_matters = "code here reads __annotations__ at run time"

    @abstractmethod
    def plan(self) -> ClassPlan:
        """What becomes of the class."""

    def find(self, rule: str, told: str, line: int | None = None, *, changes: bool = True) -> None:
        """Note something that is changed, or left."""
        where = self.cls.line if line is None else line
        self.findings.append(Finding(where, self.cls.column if line is None else 1, rule, told, changes))

    def code(self, spec: str, *, in_bases: bool = False) -> str:
        """A spec as code in this file; what is not imported yet will be.

        Args:
            spec: its classes.
            in_bases: whether Python itself has to find them, for the class's base; what only checkers import is then
                imported for all if it is vLLM's, and quoted otherwise.

        Raises:
            UnnameableError: it cannot be written there.
        """
        written = self.names.write(spec, in_bases=in_bases)
        self.imports |= written.imports
        self.moved |= written.moved
        for name in sorted(written.moved):
            told = f"{name} is imported above the class, under no condition such as TYPE_CHECKING: a base names it"
            self.find("run-time-import", told)
        return written.code

    def obstacle(self, spec: str) -> ClassPlan | None:
        """The plan for a class that cannot say a narrow spec without an error elsewhere; ``None`` if it can.

        Args:
            spec: what it would say.
        """
        if self.cls.annotation is not None and not is_wide(
            self.project, self.module, self.cls.annotation.annotation or "KVCacheSpec"
        ):
            return None  # It says so already.
        given = wide_value(self.project, self.module, self.cls)
        if given is not None:
            told = f"it takes a {spec}, but {given[1]} (line {given[0]}): check the type there first"
            return leave(self.cls, Outcome.REFUSED, "wide-value", told, self.evidence)
        below = self._narrowed_below(f"{self.module}.{self.cls.qualname}", spec)
        if below is not None:
            told = f"it takes a {spec}, but {below}: an attribute cannot be declared anew in a subclass. Take that "
            told += "declaration away, or give this class a parameter for its spec"
            return leave(self.cls, Outcome.REFUSED, "narrowed-below", told, self.evidence)
        return None

    def _narrowed_below(self, target: str, spec: str) -> str | None:
        for module, child in self.project.subclasses(target):
            hint = None if child.annotation is None else child.annotation.annotation
            if hint is not None and identities(self.project, module, hint) != identities(
                self.project, self.module, spec
            ):
                return f"{child.name} below declares kv_cache_spec: {hint}"
            found = self._narrowed_below(f"{module}.{child.qualname}", spec)
            if found is not None:
                return found
        return None

    def refused_name(self, reason: UnnameableError) -> ClassPlan:
        """The plan for a class whose spec cannot be written where it would have to stand."""
        spec = "" if self.evidence is None else self.evidence.spec
        told = f"its spec {spec} cannot be written here: {reason}. Import or define it above the class, or name it by "
        told += "a marker, # genericbuilders: spec=NAME"
        return leave(self.cls, Outcome.REFUSED, "spec-unnameable", told, self.evidence)

    def report_false_hint(self, evidence: Evidence) -> None:
        """Tell of a hint that cannot be true."""
        if evidence.false_hint is not None:
            self.find("false-hint", f"the {evidence.false_hint} is wrong: {evidence.told_by}", changes=False)

    def report_doubt(self) -> None:
        """Tell of a class that may take several specs, so that nothing of what it demands or reads narrows its own."""
        why = self.why_doubted()
        if why is not None:
            self.find("several-specs", why, changes=False)

    def why_doubted(self) -> str | None:
        """Why what it demands and reads says nothing of its spec."""
        of = self.project, self.module, self.cls
        return doubt(*of) or assigned(*of)

    def init_hint(self, evidence: Evidence) -> str | None:
        """The new hint of the spec in ``__init__``, where the old one is wide or wrong."""
        init = init_of(self.project, self.module, self.cls)
        if init is None or init.annotation is None or not self._hint_changes(evidence):
            return None
        if init.optional:
            told = f"{init.parameter}: {init.annotation} stays, since it may be None"
            self.find("optional-spec", told, init.line, changes=False)
            return None
        try:
            code = self.code(evidence.spec)
        except UnnameableError:
            return None  # a wide hint is not wrong
        self.find("init-hint", f"{init.parameter}: {init.annotation} becomes {evidence.spec}", init.line)
        return code

    def _hint_changes(self, evidence: Evidence) -> bool:
        init = self.cls.init
        if init is None or init.annotation is None:
            return False
        if same_spec(self.project, self.module, init.annotation, evidence.spec):
            return False
        return is_wide(self.project, self.module, init.annotation) or evidence.false_hint is not None

    def needless(self, evidence: Evidence) -> frozenset[Position]:
        """Where asserts stand that say no more than what the class now says, each told; what stays is told too."""
        found: set[Position] = set()
        uncertain = doubt(self.project, self.module, self.cls)
        for check in self.cls.checks:
            if not (
                check.is_assert and self._is_settled(check, evidence) and self._covers(check.classes, evidence.spec)
            ):
                continue
            stays = uncertain or check.stays
            if stays is None:
                found.add(check.position)
                self.find("needless-assert", f"the class says so to its base: {evidence.spec}", check.line)
            else:
                self.find("needless-assert", f"it stays: {stays}", check.line, changes=False)
        return frozenset(found)

    def casts(self, evidence: Evidence) -> frozenset[Position]:
        """Where casts of the spec stand that say no more than what the class now says."""
        if doubt(self.project, self.module, self.cls) is not None:
            return frozenset()
        return frozenset(
            cast.position
            for cast in self.cls.casts
            if same_spec(self.project, self.module, cast.said, evidence.spec)
            and (self._self_is_settled() if cast.of_self else self._parameter_is(evidence))
        )

    def _is_settled(self, check: Check, evidence: Evidence) -> bool:
        """Whether the class's spec is that of what an assert asks for."""
        if check.of_self:
            return self._self_is_settled()
        init = init_of(self.project, self.module, self.cls)
        if init is None or init.optional:
            return False
        return init.annotation is None or self._parameter_is(evidence)

    def _self_is_settled(self) -> bool:
        annotation = self.cls.annotation
        optional = annotation is not None and (annotation.optional or annotation.annotation is None)
        return not optional and assigned(self.project, self.module, self.cls) is None

    def _parameter_is(self, evidence: Evidence) -> bool:
        """Whether the parameter of ``__init__`` has the class's spec for a hint, and keeps its value."""
        init = init_of(self.project, self.module, self.cls)
        if init is None or init.annotation is None or init.optional or self.cls.rebinds:
            return False
        same = same_spec(self.project, self.module, init.annotation, evidence.spec)
        return same or self._hint_changes(evidence)

    def _covers(self, classes: tuple[str, ...], spec: str) -> bool:
        """Whether every spec of a union is one of the classes, or derives from one."""
        asked = identities(self.project, self.module, " | ".join(classes))
        return all(asked & lineage(self.project, self.module, each) for each in members(spec))

    def made(self, evidence: Evidence | None) -> ClassReport:
        """The report of what was found."""
        changed = any(finding.changes for finding in self.findings)
        spec, why = (None, None) if evidence is None else (evidence.spec, evidence.told_by)
        ordered = tuple(sorted(self.findings, key=lambda each: (each.line, each.column)))
        outcome = Outcome.MIGRATED if changed else Outcome.UNCHANGED
        return ClassReport(self.cls.qualname, self.cls.line, outcome, spec, why, ordered)
