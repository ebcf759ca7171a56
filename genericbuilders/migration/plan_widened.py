"""The plan for the base as the merged PR left it: any spec in signatures, and an annotation that narrows it."""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.migration.classes import ClassInfo
from genericbuilders.migration.evidence import Evidence, find_evidence
from genericbuilders.migration.known_builders import KNOWN_ANNOTATED, KNOWN_BUILDERS
from genericbuilders.migration.naming import UnnameableError
from genericbuilders.migration.plan import COMMON_FIELDS, ClassPlan, Planner, leave, refuse
from genericbuilders.migration.project import Project
from genericbuilders.migration.result import Outcome
from genericbuilders.migration.spec_names import is_wide, same_spec, translated
from genericbuilders.migration.values import hands_on

__all__ = ["plan_widened"]


def plan_widened(project: Project, module: str, cls: ClassInfo) -> ClassPlan:
    """Decide what becomes of one builder, or of what looks like one."""
    base = project.base_of(module, cls)
    refused = refuse(project, module, cls, base)
    if refused is not None or base is None:
        return refused or leave(cls, Outcome.UNCHANGED)
    return _WidenedPlanner(project, module, cls, base).plan()


class _WidenedPlanner(Planner):
    @override
    def plan(self) -> ClassPlan:
        try:
            return self._plan()
        except UnnameableError as reason:
            return self.refused_name(reason)

    def _plan(self) -> ClassPlan:
        evidence = self.evidence
        if self.base.is_ours:
            return leave(self.cls, Outcome.UNCHANGED, evidence=evidence)
        hook = self._hook_hint()
        if evidence is None or evidence.wide:
            self.report_doubt()
            return ClassPlan(self.cls, self.made(evidence), hook_hint=hook, imports=frozenset(self.imports))
        self.report_false_hint(evidence)
        added: str | None = None
        if self.cls.annotation is None and not evidence.inherited and not self._base_says(evidence):
            if self.annotation_matters is not None:
                return self._plan_without(evidence, hook)
            obstacle = self.obstacle(evidence.spec)
            if obstacle is not None:
                return obstacle
            self.find("add-annotation", f"kv_cache_spec: {evidence.spec} narrows what the base declares")
            added = self.code(evidence.spec)
        needless, hint = self.needless(evidence), self.init_hint(evidence)
        return ClassPlan(
            self.cls,
            self.made(evidence),
            spec=evidence.spec,
            needless=needless,
            casts=self.casts(evidence),
            add_annotation=added,
            init_hint=hint,
            hook_hint=hook,
            imports=frozenset(self.imports),
        )

    def _plan_without(self, evidence: Evidence, hook: str | None) -> ClassPlan:
        """The plan for a class that an annotation would give a field: what narrows the spec in its methods stays."""
        self.find(
            "field-annotation",
            f"kv_cache_spec: {evidence.spec} does not come: {self.annotation_matters}; have the base say so instead "
            "(--target generic)",
            changes=False,
        )
        hint = self.init_hint(evidence)
        return ClassPlan(self.cls, self.made(evidence), init_hint=hint, hook_hint=hook, imports=frozenset(self.imports))

    def _base_says(self, evidence: Evidence) -> bool:
        """Whether the base declares that spec already, or will."""
        if self.base.is_root:
            return False
        found = self.project.class_of(self.base.target)
        if found is None:
            said = KNOWN_BUILDERS.get(self.base.target) if self.base.target in KNOWN_ANNOTATED else None
        else:
            above = find_evidence(self.project, *found)
            said = None if above is None else translated(self.project, found[0], self.module, above.spec)
        return said is not None and same_spec(self.project, self.module, said, evidence.spec)

    def _hook_hint(self) -> str | None:
        hook = self.cls.hook
        if hook is None or hook.annotation is None or is_wide(self.project, self.module, hook.annotation):
            return None
        read = sorted(self.cls.hook_fields - COMMON_FIELDS)
        if read:
            self.find(
                "hook-hint",
                f"get_cudagraph_support reads {', '.join(read)} of its {hook.annotation}; the base passes any spec, so "
                "check the type first, then widen the hint",
                hook.line,
                changes=False,
            )
            return None
        handed = hands_on(self.project.tree(self.module), self.cls.line, "get_cudagraph_support", hook.parameter)
        if handed is not None:
            self.find(
                "hook-hint",
                f"get_cudagraph_support hands its {hook.annotation} on (line {handed}); the base passes any spec, so "
                "check the type first, then widen the hint",
                hook.line,
                changes=False,
            )
            return None
        code = self.code("KVCacheSpec")
        told = f"{hook.parameter}: {hook.annotation} becomes KVCacheSpec, as the base passes it"
        self.find("hook-hint", told, hook.line)
        return code
