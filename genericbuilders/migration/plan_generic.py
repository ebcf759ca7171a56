"""The plan for the base with two type parameters."""

from __future__ import annotations

import builtins
import re
from dataclasses import replace

from typing_extensions import override

from genericbuilders.migration.classes import ClassInfo
from genericbuilders.migration.descendants import agreed_below
from genericbuilders.migration.evidence import Evidence
from genericbuilders.migration.naming import UnnameableError
from genericbuilders.migration.parameters import no_parameter, num_parameters, parameter_name
from genericbuilders.migration.plan import BASE_MODULE, SPEC_PARAMETER, ClassPlan, Planner, leave, refuse
from genericbuilders.migration.project import BuilderBase, Project
from genericbuilders.migration.result import ClassReport, Outcome
from genericbuilders.migration.spec_names import same_spec, translated
from genericbuilders.migration.words import free_name

__all__ = ["plan_generic"]

_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_HEADS = re.compile(r"(?<![\w.])[^\W\d]\w*")
_BUILTINS = frozenset(dir(builtins))


def plan_generic(project: Project, module: str, cls: ClassInfo) -> ClassPlan:
    """Decide what becomes of one builder, or of what looks like one."""
    base = project.base_of(module, cls)
    refused = refuse(project, module, cls, base)
    if refused is not None or base is None:
        return refused or leave(cls, Outcome.UNCHANGED)
    return _GenericPlanner(project, module, cls, base).plan()


class _GenericPlanner(Planner):
    @override
    def plan(self) -> ClassPlan:
        try:
            if self.base.is_root or (self.base.is_ours and len(self.base.ref.arguments) < 2):
                return self._plan_root()
            return self._plan_derived()
        except UnnameableError as reason:
            return self.refused_name(reason)

    def _plan_root(self) -> ClassPlan:
        evidence, differing = self._evidence_of_root()
        if differing is not None:
            return self._plan_parameter(differing)
        if evidence is None:
            return leave(
                self.cls,
                Outcome.REFUSED,
                "spec-unknown",
                f"{self.why_doubted() or 'nothing says which spec it takes'}; write it behind the class: "
                f"class {self.cls.name}(...):  # genericbuilders: spec=MambaSpec",
            )
        if evidence.wide:
            self.report_doubt()
            return ClassPlan(self.cls, self.made(evidence))
        obstacle = self.obstacle(evidence.spec)
        if obstacle is not None:
            return obstacle
        self.report_false_hint(evidence)
        metadata, code = self._metadata(), self.code(evidence.spec, in_bases=True)
        self.find("spec-argument", f"the base takes {metadata} and {evidence.spec}")
        drop = self._annotation_goes(evidence.spec)
        needless, hint = self.needless(evidence), self.init_hint(evidence)
        made = self._with_root(self.made(evidence), (metadata, code), evidence.spec, hint, drop=drop)
        return replace(made, needless=needless, casts=self.casts(evidence))

    def _plan_parameter(self, differing: str) -> ClassPlan:
        """A generic intermediate whose subclasses take different specs: the spec becomes a parameter of its own."""
        reason = no_parameter(self.project, self.module, self.cls, self.base)
        if reason is not None:
            told = f"{differing}, but it cannot be given a parameter for the spec: {reason}. Give it one by hand"
            return leave(self.cls, Outcome.REFUSED, "spec-parameter", told)
        metadata, name = self._metadata(), parameter_name(self.project, self.module)
        if name is None:
            name = free_name(self.project.tree(self.module), SPEC_PARAMETER, "BuilderSpecT")
            self.imports.add((BASE_MODULE, name if name == SPEC_PARAMETER else f"{SPEC_PARAMETER} as {name}"))
        self.find("spec-parameter", f"the base takes {metadata} and {name}, since {differing}")
        made = self._with_root(self.made(Evidence(name, differing)), (metadata, name), None, None)
        return replace(made, is_parameter=True)

    def _with_root(
        self, report: ClassReport, arguments: tuple[str, ...], spec: str | None, hint: str | None, *, drop: bool = False
    ) -> ClassPlan:
        return ClassPlan(
            self.cls,
            report,
            base_index=self.base.index,
            base_arguments=arguments,
            new_root=self.base.is_root,
            root_name=self.base.ref.name,
            spec=spec,
            drop_annotation=drop,
            init_hint=hint,
            imports=frozenset(self.imports),
            moved=frozenset(self.moved),
        )

    def _evidence_of_root(self) -> tuple[Evidence | None, str | None]:
        """Its own evidence, or that of its subclasses; or why the spec has to be a parameter."""
        own = self.evidence
        if own is not None and not own.wide:
            return own, None
        agreed, differing = agreed_below(self.project, self.module, self.cls)
        return (agreed if own is None and agreed is not None else own), differing

    def _plan_derived(self) -> ClassPlan:
        evidence, given = self.evidence, _given_spec(self.project, self.module, self.base)
        if evidence is None:
            return ClassPlan(self.cls, self.made(evidence))
        if given == SPEC_PARAMETER:
            return self._fill_parameter(evidence)
        self.report_false_hint(evidence)
        hint = self.init_hint(evidence)
        if given is None or not same_spec(self.project, self.module, given, evidence.spec):
            self._tell_what_stays(given, evidence)
            return ClassPlan(self.cls, self.made(evidence), init_hint=hint, imports=frozenset(self.imports))
        drop, needless = self._annotation_goes(evidence.spec), self.needless(evidence)
        return ClassPlan(
            self.cls,
            self.made(evidence),
            spec=evidence.spec,
            drop_annotation=drop,
            needless=needless,
            casts=self.casts(evidence),
            init_hint=hint,
            imports=frozenset(self.imports),
        )

    def _tell_what_stays(self, given: str | None, evidence: Evidence) -> None:
        asserted = any(check.is_assert for check in self.cls.checks)
        if self.cls.annotation is None and not asserted and (given is None or evidence.inherited):
            return
        line = self.cls.line if self.cls.annotation is None else self.cls.annotation.line
        told = (
            f"its base {self.base.ref.name} has no parameter for the spec; what says {evidence.spec} here stays"
            if given is None
            else f"its base gives it a {given}; what narrows that to {evidence.spec} stays"
        )
        self.find("base-decides", told, line, changes=False)

    def _fill_parameter(self, evidence: Evidence) -> ClassPlan:
        """Give the spec to a base that has a parameter for it, behind those that it had."""
        given = self.base.ref.arguments
        if len(given) != num_parameters(self.project, self.base.target) or evidence.wide or evidence.inherited:
            return ClassPlan(self.cls, self.made(evidence))
        code = self.code(evidence.spec, in_bases=True)
        self.find("spec-argument", f"the base takes {evidence.spec}")
        drop, needless = self._annotation_goes(evidence.spec), self.needless(evidence)
        return ClassPlan(
            self.cls,
            self.made(evidence),
            base_index=self.base.index,
            base_arguments=(*given, code),
            spec=evidence.spec,
            drop_annotation=drop,
            needless=needless,
            casts=self.casts(evidence),
            imports=frozenset(self.imports),
            moved=frozenset(self.moved),
        )

    def _annotation_goes(self, spec: str) -> bool:
        annotation = self.cls.annotation
        if annotation is None or annotation.annotation is None or annotation.has_value:
            return False
        if not same_spec(self.project, self.module, annotation.annotation, spec):
            return False
        if annotation.optional:
            self.find("optional-spec", "it stays, since it allows None", annotation.line, changes=False)
            return False
        if annotation.stays is not None:
            self.find("needless-annotation", f"it stays: {annotation.stays}", annotation.line, changes=False)
            return False
        if self.annotation_matters is not None:
            self.find("field-annotation", f"{self.annotation_matters}: it stays", annotation.line, changes=False)
            return False
        self.find("needless-annotation", f"the class says so to its base: {spec}", annotation.line)
        return True

    def _metadata(self) -> str:
        """The first type argument: as it is, or what ``build`` returns."""
        if self.base.ref.arguments:
            return self.base.ref.arguments[0]
        returned = self.cls.build_returns
        if returned is None or returned in ("None", "Any"):
            return self._any("has no return hint")
        bare = returned.strip("'\"")
        heads = {each for each in _HEADS.findall(bare) if each not in _BUILTINS}
        if not all(self.names.is_findable(each) for each in heads) and not self.info.stars:
            return self._any(f"returns {bare}, which names of the module alone do not tell")
        listed = any(bare in ref.arguments for ref in self.cls.bases)
        if self.project.is_type_variable(self.module, bare) and not listed:
            return self._any(f"returns {bare}, a type variable that no base lists")
        return bare if _NAME.fullmatch(bare) and self.names.is_known(bare) else f'"{bare}"'

    def _any(self, reason: str) -> str:
        """The metadata where nothing tells it."""
        name = "Any" if self.names.is_free("Any", "typing.Any") else "AnyMetadata"
        self.imports.add(("typing", "Any" if name == "Any" else f"Any as {name}"))
        self.find("metadata-unknown", f"its build {reason}, so that its metadata is Any; name it", changes=False)
        return name


def _given_spec(project: Project, module: str, base: BuilderBase) -> str | None:
    """The spec that a base gives its subclasses once it is migrated, as ``module`` writes it; ``None``: none."""
    if base.is_ours:
        if len(base.ref.arguments) < 2:
            return None
        given = base.ref.arguments[1].strip("'\"")
        return SPEC_PARAMETER if given == parameter_name(project, module) else given
    found = project.class_of(base.target)
    if found is None:
        return None
    plan = plan_generic(project, *found)
    if plan.base_arguments is not None:
        if plan.is_parameter or plan.report.spec is None:
            return SPEC_PARAMETER
        return translated(project, found[0], module, plan.report.spec) or plan.report.spec
    own = project.base_of(*found)
    if own is None or own.is_root or own.is_dynamic:
        return None
    above = _given_spec(project, found[0], own)
    if above == SPEC_PARAMETER and not own.is_ours:
        # One in between passes on what it fills, and has no parameter of its own.
        filled = len(own.ref.arguments) > num_parameters(project, own.target)
        above = own.ref.arguments[-1] if filled else None
    return above if above in (None, SPEC_PARAMETER) else translated(project, found[0], module, above) or above
