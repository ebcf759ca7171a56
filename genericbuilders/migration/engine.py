"""Rewrites the text of one file."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper

from genericbuilders.migration.form_feeds import with_form_feeds, without_form_feeds
from genericbuilders.migration.layers import find_layer_asserts
from genericbuilders.migration.modules import ModuleInfo, dotted
from genericbuilders.migration.plan import BASE_NAME, ClassPlan
from genericbuilders.migration.plan_generic import plan_generic
from genericbuilders.migration.plan_widened import plan_widened
from genericbuilders.migration.project import Project
from genericbuilders.migration.result import ClassReport, FileResult, Finding, Outcome, Target
from genericbuilders.migration.rewrite import rewrite_classes
from genericbuilders.migration.rewrite_imports import rewrite_imports
from genericbuilders.migration.source import Position, Source

__all__ = ["migrate"]

# Beside vLLM's base, where a file needs both.
SECOND_NAME = "GenericMetadataBuilder"


def migrate(project: Project, path: Path, target: Target) -> FileResult:
    """What becomes of one file, and of each builder in it.

    Raises:
        KeyError: the file is not in the project, or did not parse.
    """
    name, text = project.names[path], project.texts[path]
    module = project.modules[name]
    plan_class = plan_generic if target is Target.GENERIC else plan_widened
    plans = [plan_class(project, name, each) for each in module.classes if project.is_interesting(name, each)]
    tree = ast.parse(text)
    getters = _getters(project, name, tree) if target is Target.GENERIC else {}
    layers = find_layer_asserts(project, name, tree, Source(text))
    findings = [*_told(getters), *_choices(tree), *(each.finding for each in layers)]
    classes = [*(plan.report for plan in plans), *_factories(project, name, module)]
    wanted = any(_changes(plan) for plan in plans) or getters or any(each.removable for each in layers)
    after = text
    if wanted:
        asserts = {each.position for each in layers if each.removable}
        lookups = dict(each.lookup for each in layers if each.lookup is not None)
        after = _rewritten(
            text, plans, getters, asserts, lookups, tree, lambda local: project.is_imported_elsewhere(name, local)
        )
    return FileResult(
        path,
        text,
        text if after == text else after,
        tuple(sorted(classes, key=lambda each: each.line)),
        tuple(sorted(findings, key=lambda each: (each.line, each.column))),
    )


def _told(getters: Mapping[int, tuple[str, int]]) -> list[Finding]:
    return [
        Finding(line, column, "builder-getter", f"get_builder_cls returns {returns}", changes=True)
        for line, (returns, column) in getters.items()
    ]


def _changes(plan: ClassPlan) -> bool:
    return plan.report.outcome is Outcome.MIGRATED


def _rewritten(
    text: str,
    plans: Sequence[ClassPlan],
    getters: Mapping[int, tuple[str, int]],
    asserts: set[Position],
    lookups: Mapping[Position, str],
    tree: ast.Module,
    kept: Callable[[str], bool],
) -> str:
    plain = without_form_feeds(text, tree) if "\f" in text else text
    module = cst.parse_module(plain)
    wrapper = MetadataWrapper(module)
    roots = {plan.root_name for plan in plans if plan.new_root}
    replaced = {name for name in roots if _only_bases(tree, name, plans, getters)}
    new_names = {name: name if name in replaced and "." not in name else SECOND_NAME for name in roots}
    if roots and not replaced and not _uses(tree, BASE_NAME):
        new_names = dict.fromkeys(roots, BASE_NAME)
    changing = [plan for plan in plans if _changes(plan)]
    done = rewrite_classes(
        wrapper, changing, {line: returns for line, (returns, _) in getters.items()}, new_names, asserts, lookups
    )
    after = rewrite_imports(
        done.module,
        {name.partition(".")[0]: new_names[name] for name in roots},
        {name for name in replaced if "." not in name},
        {each for plan in changing for each in plan.imports},
        {each for each in done.unused if not kept(each)},
        {each for plan in changing for each in plan.moved},
    ).code
    return with_form_feeds(text, module.code, after) if "\f" in text else after


def _only_bases(tree: ast.Module, name: str, plans: Sequence[ClassPlan], getters: Collection[int]) -> bool:
    """Whether a file uses its name for vLLM's base for nothing but the bases that are replaced."""
    return _uses(tree, name, getters) == sum(plan.new_root and plan.root_name == name for plan in plans)


def _uses(tree: ast.Module, name: str, getters: Collection[int] = ()) -> int:
    """Uses of a dotted name, in strings too; imports are none, and neither are hints that go: ``cls``'s, getters'."""
    gone: set[int] = set()
    for function in (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)):
        if function.args.args and function.args.args[0].arg == "cls":
            gone |= {id(node) for node in ast.walk(function.args.args[0])}
        if function.lineno in getters and function.returns is not None:
            gone |= {id(node) for node in ast.walk(function.returns)}
    found = 0
    for node in ast.walk(tree):
        if id(node) in gone:
            continue
        if isinstance(node, ast.Name | ast.Attribute) and dotted(node) == name:
            found += 1
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and name in node.value:
            found += "\n" not in node.value and " " not in node.value.strip()
    return found


def _getters(project: Project, module: str, tree: ast.Module) -> dict[int, tuple[str, int]]:
    """Each ``get_builder_cls`` that returns one builder and does not say which."""
    found: dict[int, tuple[str, int]] = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.FunctionDef) and node.name == "get_builder_cls"):
            continue
        returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
        if len(returned) != 1 or returned[0] is None or not (name := dotted(returned[0])):
            continue
        target = project.resolve(module, name)
        if target is None or project.factory_base(module, (name,)) is None:
            continue
        returns = f'type["{name}"]'
        said = "" if node.returns is None else ast.unparse(node.returns).replace("'", '"').replace('"', "")
        if said != returns.replace('"', ""):
            found[node.lineno] = returns, node.col_offset + 1
    return found


def _choices(tree: ast.Module) -> list[Finding]:
    """Each ``get_builder_cls`` that returns one of several."""
    found: list[Finding] = []
    getters = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name == "get_builder_cls")
    for node in getters:
        if sum(isinstance(each, ast.Return) for each in ast.walk(node)) > 1:
            told = "get_builder_cls chooses at run time; annotate it with what the builders have in common"
            found.append(Finding(node.lineno, node.col_offset + 1, "builder-getter", told, changes=False))
    return found


def _factories(project: Project, name: str, module: ModuleInfo) -> list[ClassReport]:
    found: list[ClassReport] = []
    for factory in module.factories:
        if project.factory_base(name, factory.bases) is None:
            continue
        told = "a call of type() makes it, so that checkers see no base; its spec is that of its base at run time"
        finding = Finding(factory.line, factory.column, "made-by-call", told, changes=False)
        found.append(ClassReport(factory.name, factory.line, Outcome.REFUSED, None, None, (finding,)))
    return found
