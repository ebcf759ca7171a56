"""Folders to check in: hard links to the cached sources, with the few files that a design changes written anew."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from typecheck.out_of_tree.inventory import Module, Tree
from typecheck.out_of_tree.packages import VLLM, Unpacked

__all__ = ["lay_out", "moved_names"]

# Where names that peers import by an older path may have gone to.
_SEARCHED = (
    "vllm/v1/attention",
    "vllm/v1/worker",
    "vllm/model_executor/layers/attention",
    "vllm/v1/kv_cache_interface.py",
)
_MENDED = ("Builder", "Backend", "Metadata", "Spec", "Impl", "AttentionCGSupport", "AttentionType", "AttentionGroup")


def lay_out(root: Path, sources: Sequence[Unpacked], changed: Mapping[str, str]) -> None:
    """Fill ``root`` with the sources' Python files; ``changed`` gives the text of those that differ or are added."""
    shutil.rmtree(root, ignore_errors=True)
    for source in sources:
        for file in (source.root / source.package.module).rglob("*.py"):
            path = file.relative_to(source.root)
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.as_posix() not in changed:
                try:
                    os.link(file, target)
                except OSError:
                    shutil.copy2(file, target)
    for name, text in changed.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # The link that may be there is to the cached source.
        target.unlink(missing_ok=True)
        target.write_text(text, encoding="utf-8")


def moved_names(tree: Tree) -> tuple[dict[str, list[tuple[str, str]]], list[str]]:
    """Re-exports that would mend the peers' imports from vLLM modules that no longer have a name.

    Only names that exactly one class of vLLM's attention code has are mended. The package ``vllm.attention`` of the
    old engine is left alone: its builders are another class.

    Returns:
        For each vLLM module the (name, module that now has it), and the imports of builder names left broken.
    """
    homes = _class_homes(tree)
    mended: dict[str, set[tuple[str, str]]] = {}
    broken: list[str] = []
    for package in tree.packages:
        if package == VLLM.module:
            continue
        for module, line, origin, name in _vllm_imports(tree, package):
            if _has(tree, origin, name):
                continue
            where = homes.get(name, [])
            if not name.endswith(_MENDED):
                continue
            if len(where) == 1 and origin != "vllm.attention":
                mended.setdefault(origin, set()).add((name, where[0]))
            else:
                broken.append(f"{module.path}:{line}: from {origin} import {name}")
    return {origin: sorted(names) for origin, names in sorted(mended.items())}, sorted(broken)


def _class_homes(tree: Tree) -> dict[str, list[str]]:
    homes: dict[str, list[str]] = {}
    for place in _SEARCHED:
        target = tree.root / place
        for file in [target] if target.suffix else sorted(target.rglob("*.py")):
            module = tree.module_of(file)
            for name in module.classes if module else ():
                homes.setdefault(name, []).append(module.name if module else "")
    return homes


def _vllm_imports(tree: Tree, package: str) -> Iterator[tuple[Module, int, str, str]]:
    for file in tree.files(package):
        if b"vllm.attention" not in (text := file.read_bytes()) and b"vllm.v1" not in text:
            continue
        module = tree.module_of(file)
        for local, (origin, name) in module.imports.items() if module else ():
            if module and name and origin.startswith("vllm."):
                line = next((number for number, each in enumerate(module.lines, 1) if local in each), 1)
                yield module, line, origin, name


def _has(tree: Tree, origin: str, name: str) -> bool:
    module = tree.module(origin)
    if module is None:
        return False
    if name in module.classes or name in module.imports:
        return True
    # Anything else that binds the name: a function, an assignment, a submodule.
    return tree.module(f"{origin}.{name}") is not None or any(
        line.startswith((f"def {name}", f"{name} ", f"{name}:")) for line in module.lines
    )
