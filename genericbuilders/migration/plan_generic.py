"""The plan for the base with two type parameters."""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from genericbuilders.migration.classes import ClassInfo
from genericbuilders.migration.descendants import agreed_below
from genericbuilders.migration.evidence import Evidence
from genericbuilders.migration.plan import BASE_MODULE, SPEC_PARAMETER, ClassPlan, Planner, leave, refuse
from genericbuilders.migration.project import BuilderBase, Project
from genericbuilders.migration.result import ClassReport, Outcome
from genericbuilders.migration.spec_names import same_spec, translated

__all__ = ["plan_generic"]


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
        if self.base.is_root or (self.base.is_ours and len(self.base.ref.arguments) < 2):
            return self._plan_root()
        return self._plan_derived()

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
        self.report_false_hint(evidence)
        metadata, code = self._metadata(), self.code(evidence.spec, at_run_time=True)
        self.find("spec-argument", f"the base takes {metadata} and {evidence.spec}")
        drop = self._annotation_goes(evidence.spec)
        needless, hint = self.needless(evidence), self.init_hint(evidence)
        made = self._with_root(self.made(evidence), (metadata, code), evidence.spec, hint, drop=drop)
        return replace(made, needless=needless, casts=self.casts(evidence))

    def _plan_parameter(self, differing: str) -> ClassPlan:
        """A generic intermediate whose subclasses take different specs: the spec becomes a parameter of its own."""
        metadata = self._metadata()
        self.imports.add((BASE_MODULE, SPEC_PARAMETER))
        self.find("spec-parameter", f"the base takes {metadata} and {SPEC_PARAMETER}, since {differing}")
        return self._with_root(self.made(Evidence(SPEC_PARAMETER, differing)), (metadata, SPEC_PARAMETER), None, None)

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
        evidence, given = self.evidence, _given_spec(self.project, self.base, self.module)
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
        if len(given) > _num_parameters(self.project, self.base.target) or evidence.wide or evidence.inherited:
            return ClassPlan(self.cls, self.made(evidence))
        code = self.code(evidence.spec, at_run_time=True)
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
        if self.makes_fields:
            self.find(
                "field-annotation",
                "a decorator makes it a field, which its constructor takes: it stays",
                annotation.line,
                changes=False,
            )
            return False
        self.find("needless-annotation", f"the class says so to its base: {spec}", annotation.line)
        return True

    def _metadata(self) -> str:
        """The first type argument: as it is, or what ``build`` returns."""
        if self.base.ref.arguments:
            return self.base.ref.arguments[0]
        returned = self.cls.build_returns
        if returned is None or returned in ("None", "Any"):
            self.imports.add(("typing", "Any"))
            self.find(
                "metadata-unknown", "its build has no return hint, so that its metadata is Any; name it", changes=False
            )
            return "Any"
        bare = returned.strip("'\"")
        head = bare.partition(".")[0]
        imported = head in self.info.imports and head not in self.info.checked_only
        above = any(each.qualname == bare and each.line < self.cls.line for each in self.info.classes)
        return bare if imported or above else f'"{bare}"'


def _given_spec(project: Project, base: BuilderBase, module: str) -> str | None:
    """The spec that a base gives its subclasses once it is migrated, as ``module`` writes it; ``None``: none."""
    if base.is_ours:
        return base.ref.arguments[1] if len(base.ref.arguments) > 1 else None
    found = project.class_of(base.target)
    if found is None:
        return None
    plan = plan_generic(project, *found)
    if plan.base_arguments is not None:
        if plan.base_arguments[-1] == SPEC_PARAMETER or plan.report.spec is None:
            return SPEC_PARAMETER
        return translated(project, found[0], module, plan.report.spec) or plan.report.spec
    own = project.base_of(*found)
    given = None if own is None or own.is_root or own.is_dynamic else _given_spec(project, own, found[0])
    return given if given in (None, SPEC_PARAMETER) else translated(project, found[0], module, given) or given


def _num_parameters(project: Project, target: str) -> int:
    """The type parameters that a class of the files has without that of its spec: those of its builder base."""
    found = project.class_of(target)
    if found is None:
        return 0
    base = project.base_of(*found)
    variables = project.modules[found[0]].type_variables
    imported = project.modules[found[0]].imports
    given = () if base is None else base.ref.arguments[:1]
    return sum(name in variables or (name in imported and len(name) <= 2) for name in given)
