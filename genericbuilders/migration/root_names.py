"""What becomes of a file's names for vLLM's base, each for itself, and which import statements brought them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from genericbuilders.migration.bindings import dotted
from genericbuilders.migration.modules import absolute_module
from genericbuilders.migration.plan import BASE_NAME, ClassPlan
from genericbuilders.migration.project import Project
from genericbuilders.migration.words import free_name, is_expression

__all__ = ["Brought", "NewBase", "find_new_bases"]

# Beside vLLM's base, where a file needs both.
_SECOND_NAME = "GenericMetadataBuilder"


@dataclass(frozen=True)
class Brought:
    """One name in an import statement, as it is written.

    Attributes:
        module: behind ``from``, with its dots; empty in ``import ...``.
        name: what is imported; ``*`` for all.
        local: what it is called in the file.
    """

    module: str
    name: str
    local: str


@dataclass(frozen=True)
class NewBase:
    """What takes the place of one name for vLLM's base.

    Attributes:
        old: the file's name, dotted.
        new: the file's name for the new base.
        replaced: whether nothing else uses the old name, so that its import goes.
        brought: the imports beside, or instead of, which the new base is imported.
    """

    old: str
    new: str
    replaced: bool
    brought: frozenset[Brought]


def find_new_bases(
    project: Project, module: str, plans: Sequence[ClassPlan], getters: Collection[int]
) -> list[NewBase]:
    """The new base for each name that the classes of ``plans`` call vLLM's by."""
    tree = project.tree(module)
    names = list(dict.fromkeys(plan.root_name for plan in plans if plan.new_root))
    if not names:
        return []
    second = free_name(tree, BASE_NAME, _SECOND_NAME)
    found: list[NewBase] = []
    for name in names:
        imports = frozenset(_brought(project, module, tree, name))
        named = bool(imports) and all(each.local == name and each.module and each.name != "*" for each in imports)
        count = sum(plan.new_root and plan.root_name == name for plan in plans)
        replaced = named and _uses(tree, name, getters) == count and not project.is_read_elsewhere(module, name)
        found.append(NewBase(name, name if replaced else second, replaced, imports))
    return found


def _brought(project: Project, module: str, tree: ast.Module, name: str) -> Iterator[Brought]:
    """The imports through which a file has a name for vLLM's base."""
    info = project.modules[module]
    head = name.partition(".")[0]
    # A name that was assigned: what it was assigned from, at last.
    seen: set[str] = set()
    while head in info.aliases and head not in info.imports and head not in seen:
        seen.add(head)
        name = info.aliases[head] + name[len(head) :]
        head = name.partition(".")[0]
    every = [
        (each, _origin(project, module, node, alias))
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        for each in (_described(node, alias),)
    ]
    here = [(each, origin) for each, origin in every if each.local == head]
    exact = [each for each, origin in here if not each.module and f"{origin}." == name[: len(origin) + 1]]
    longest = max((len(each.name) for each in exact), default=0)
    if longest > len(head):
        # `import vllm.config` binds the same name as `import vllm.v1.attention.backend`, which is the one meant.
        yield from (each for each in exact if len(each.name) == longest)
    elif here:
        leading = [each for each, origin in here if project.is_root(module, origin + name[len(head) :])]
        yield from leading or [each for each, _ in here]
    else:
        stars = ((each, origin.removesuffix("*")) for each, origin in every if each.name == "*")
        yield from (each for each, star in stars if project.is_root(module, star + name))


def _origin(project: Project, module: str, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    if isinstance(node, ast.Import):
        return alias.name
    info = project.modules[module]
    return f"{absolute_module(info.name, info.is_package, node)}.{alias.name}"


def _described(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Brought:
    if isinstance(node, ast.Import):
        return Brought("", alias.name, alias.asname or alias.name.partition(".")[0])
    return Brought("." * node.level + (node.module or ""), alias.name, alias.asname or alias.name)


def _uses(tree: ast.Module, name: str, getters: Collection[int]) -> int:
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
            found += is_expression(node.value)
    return found
