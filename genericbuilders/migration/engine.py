"""Rewrites the text of one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper

from genericbuilders.migration.form_feeds import with_form_feeds, without_form_feeds
from genericbuilders.migration.getters import find_getters
from genericbuilders.migration.layers import LayerAssert, find_layer_asserts
from genericbuilders.migration.modules import ModuleInfo
from genericbuilders.migration.plan import ClassPlan
from genericbuilders.migration.plan_generic import plan_generic
from genericbuilders.migration.plan_widened import plan_widened
from genericbuilders.migration.project import Project
from genericbuilders.migration.result import ClassReport, FileResult, Finding, Outcome, Target
from genericbuilders.migration.rewrite import rewrite_classes
from genericbuilders.migration.rewrite_imports import Imports, rewrite_imports
from genericbuilders.migration.root_names import find_new_bases
from genericbuilders.migration.source import Source

__all__ = ["migrate"]


def migrate(project: Project, path: Path, target: Target) -> FileResult:
    """What becomes of one file, and of each builder in it.

    Raises:
        KeyError: the file is not in the project, or did not parse.
    """
    name, text = project.names[path], project.texts[path]
    module = project.modules[name]
    plan_class = plan_generic if target is Target.GENERIC else plan_widened
    plans = [plan_class(project, name, each) for each in module.classes if project.is_interesting(name, each)]
    tree, source = project.tree(name), Source(text)
    getters = find_getters(project, name, typed=target is Target.GENERIC)
    layers = find_layer_asserts(project, name, tree, source)
    findings = [*(each.finding for each in getters), *(each.finding for each in layers)]
    classes = [*(_placed(plan.report, source) for plan in plans), *_factories(project, name, module)]
    typed = {each.line: each.returns for each in getters if each.returns is not None}
    wanted = any(_changes(plan) for plan in plans) or typed or any(each.removable for each in layers)
    after = _rewritten(project, name, plans, typed, layers) if wanted else text
    return FileResult(
        path,
        text,
        text if after == text else after,
        tuple(sorted(classes, key=lambda each: each.line)),
        tuple(sorted(findings, key=lambda each: (each.line, each.column))),
    )


def _placed(report: ClassReport, source: Source) -> ClassReport:
    """The report, with findings that know their line alone at the start of what stands there."""
    findings = (each if each.column > 1 else replace(each, column=source.start(each.line)) for each in report.findings)
    return replace(report, findings=tuple(findings))


def _changes(plan: ClassPlan) -> bool:
    return plan.report.outcome is Outcome.MIGRATED


def _rewritten(
    project: Project,
    module: str,
    plans: Sequence[ClassPlan],
    getters: Mapping[int, str],
    layers: Sequence[LayerAssert],
) -> str:
    text = project.text(module)
    parsed = cst.parse_module(without_form_feeds(text, project.tree(module)) if "\f" in text else text)
    changing = [plan for plan in plans if _changes(plan)]
    bases = find_new_bases(project, module, changing, getters)
    asserts = {each.position for each in layers if each.removable}
    lookups = dict(each.lookup for each in layers if each.lookup is not None)
    done = rewrite_classes(
        MetadataWrapper(parsed),
        changing,
        getters,
        {base.old: base.new for base in bases},
        asserts,
        lookups,
    )
    wanted = Imports(
        tuple(bases),
        frozenset(each for plan in changing for each in plan.imports),
        frozenset(each for each in done.unused if not project.is_read_elsewhere(module, each)),
        frozenset(each for plan in changing for each in plan.moved),
        frozenset(plan.cls.name for plan in changing),
    )
    after = rewrite_imports(done.module, wanted).code
    return with_form_feeds(text, parsed.code, after) if "\f" in text else after


def _factories(project: Project, name: str, module: ModuleInfo) -> list[ClassReport]:
    found: list[ClassReport] = []
    for factory in module.factories:
        if project.factory_base(name, factory.bases) is None:
            continue
        told = "a call of type() makes it, so that checkers see no base; its spec is that of its base at run time"
        finding = Finding(factory.line, factory.column, "made-by-call", told, changes=False)
        found.append(ClassReport(factory.name, factory.line, Outcome.REFUSED, None, None, (finding,)))
    return found
