"""Measures every design: lays its tree out, runs the checkers, and puts the figures together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from typecheck.out_of_tree import layout
from typecheck.out_of_tree.checking import LANES, Finding, Lane, find
from typecheck.out_of_tree.designs import WIDENED, Design, patch_base
from typecheck.out_of_tree.figures import SIDES, Checked, Json, answers, call_sites, changes, side_of
from typecheck.out_of_tree.hatches import Hatches
from typecheck.out_of_tree.imports import failing
from typecheck.out_of_tree.inventory import Builder, Inventory, Tree, take_inventory
from typecheck.out_of_tree.migrate import migrate_file, strip_file
from typecheck.out_of_tree.packages import Unpacked
from typecheck.out_of_tree.places import Places
from typecheck.out_of_tree.probe import PROBE_FILE, ProbeModule, RevealedSites, probe_module, reveal_sites

__all__ = ["Study", "measure"]

_BASE_FILE = "vllm/v1/attention/backend.py"
_WORDS = re.compile(
    r"\b(\w*MetadataBuilder|get_builder_cls|get_metadata_builder|metadata_builders|AttentionGroup|get_cudagraph_support)\b"
)


@dataclass(frozen=True)
class Study:
    """What every design shares: the sources, the builders in them, the files to check and the files to shim."""

    sources: tuple[Unpacked, ...]
    tree: Tree
    inventory: Inventory
    files: tuple[str, ...]
    shims: dict[str, str]
    mended: dict[str, list[tuple[str, str]]]
    broken: tuple[str, ...]
    probe: ProbeModule

    @classmethod
    def prepare(cls, sources: Sequence[Unpacked], work: Path) -> Study:
        """Count builders, mend the peers' imports, choose the files."""
        modules = [source.package.module for source in sources]
        root = work / "trees" / "plain"
        layout.lay_out(root, sources, {})
        mended, broken = layout.moved_names(Tree(root, modules))
        shims = _shims(root, mended)
        layout.lay_out(root, sources, shims)
        tree = Tree(root, modules)
        inventory = take_inventory(tree)
        files = [path for module in modules for path in _checked_files(tree, module)]
        return cls(
            tuple(sources),
            tree,
            inventory,
            tuple(files),
            shims,
            mended,
            tuple(broken),
            probe_module(inventory.builders),
        )

    def builders_by_path(self) -> dict[str, list[Builder]]:
        """The builders of each file."""
        found: dict[str, list[Builder]] = {}
        for builder in self.inventory.builders:
            found.setdefault(builder.path, []).append(builder)
        return found


def _shims(root: Path, mended: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for origin, names in mended.items():
        stem = "/".join(origin.split("."))
        path = next((each for each in (f"{stem}.py", f"{stem}/__init__.py") if (root / each).is_file()), f"{stem}.py")
        exports = "".join(f"from {home} import {name} as {name}\n" for name, home in names)
        old = (root / path).read_text(encoding="utf-8") if (root / path).is_file() else ""
        texts[path] = f"{old}\n{exports}" if old else exports
    return texts


def _checked_files(tree: Tree, package: str) -> Iterable[str]:
    for file in tree.files(package):
        text = file.read_text(encoding="utf-8", errors="replace")
        module = tree.module_of(file) if _WORDS.search(text) else None
        if module is not None and _WORDS.search("\n".join(_code_words(module.lines))):
            yield module.path


def _code_words(lines: Sequence[str]) -> Iterable[str]:
    return (line.partition("#")[0] for line in lines)


def measure(
    study: Study, designs: Sequence[Design], work: Path, say: Callable[[str], None], lanes: Sequence[Lane] = LANES
) -> Iterator[Json]:
    """The figures of each design; the first one has to be the widened base, with which the others are compared.

    Args:
        study: what is measured.
        designs: the bases, the widened one first.
        work: where trees and caches are written.
        say: told what is being done.
        lanes: the checkers.

    Raises:
        ValueError: the first design is another.
    """
    if not designs or designs[0] != WIDENED:
        raise ValueError("the first design must be the widened base: the others are compared with it")
    baseline: dict[str, Checked] = {}
    wrapped: dict[tuple[str, str], RevealedSites] = {}
    for design in designs:
        say(f"{design.name}: the tree")
        prepared = _lay_out(study, design, work, wrapped)
        checkers: Json = {}
        for lane in lanes:
            name = lane.checker.name
            say(f"{design.name}: {name}")
            found = Checked(tuple(_run(lane, study, prepared.root, work, design)), prepared.places)
            checkers[name] = {
                **changes(baseline.setdefault(name, found), found),
                "builders": answers(study.probe, study.inventory, found.findings),
                "call_sites": call_sites(found.findings, prepared.sites),
            }
        yield {"design": design.name, "base_parameters": design.parameters, **prepared.figures, "checkers": checkers}


@dataclass(frozen=True)
class _Prepared:
    root: Path
    places: Places
    sites: dict[tuple[str, int], list[str]]
    figures: Json


def _lay_out(study: Study, design: Design, work: Path, wrapped: dict[tuple[str, str], RevealedSites]) -> _Prepared:
    root = work / "trees" / design.name
    plain = study.tree.root
    changed = dict(study.shims)
    changed[_BASE_FILE] = patch_base((plain / _BASE_FILE).read_text(encoding="utf-8"), design)
    by_path = study.builders_by_path()
    counts = {"builders_rewritten": 0, "re_annotations_dropped": 0, "asserts_dropped": 0}
    for path, builders in by_path.items() if design.rewrite else ():
        rewrite = migrate_file if design.rewrite == "migrate" else strip_file
        done = rewrite((plain / path).read_text(encoding="utf-8"), builders)
        changed[path] = done.code
        for key, more in zip(counts, (done.bases, done.re_annotations, done.asserts), strict=True):
            counts[key] += more
    sites: dict[tuple[str, int], list[str]] = {}
    inventory = study.inventory
    if design.rewrite:
        layout.lay_out(root, study.sources, changed)
        inventory = take_inventory(Tree(root, study.tree.packages))
    for path in study.files:
        if path == _BASE_FILE:
            continue
        text = changed.get(path) or (plain / path).read_text(encoding="utf-8")
        if (path, text) not in wrapped:
            lines = [(builder.line, builder.end) for builder in by_path.get(path, [])]
            wrapped[path, text] = reveal_sites(text, lines)
        changed[path] = wrapped[path, text].code
        for line, method in wrapped[path, text].sites:
            sites.setdefault((path, line), []).append(method)
    changed[PROBE_FILE] = study.probe.code
    layout.lay_out(root, study.sources, changed)
    names = {path: frozenset(builder.name for builder in builders) for path, builders in by_path.items()}
    figures: Json = {
        **counts,
        "hatches": {side: _hatches(inventory, side) for side in SIDES},
        "import_errors": _import_errors(study, design),
    }
    return _Prepared(root, Places(root, names), sites, figures)


def _hatches(inventory: Inventory, side: str) -> Json:
    builders = [each for each in inventory.builders if side_of(each.package) == side]
    total = sum((each.hatches for each in builders), Hatches())
    return {
        "builders": len(builders),
        "with_a_hatch": sum(each.hatches.any_at_all for each in builders),
        **asdict(total),
    }


def _import_errors(study: Study, design: Design) -> Json:
    """On the design's own base and, for rewritten builders, on the one-parameter base that is released."""
    added = int(design.rewrite == "migrate")
    return {
        "on_this_base": _failures(study, design, added),
        "on_the_released_base": _failures(study, WIDENED, added),
    }


def _failures(study: Study, base: Design, added: int) -> Json:
    first, later = failing(study.inventory, base, added)
    return {
        side: {
            "by_themselves": sum(side_of(each.package) == side for each in first),
            "after_another": sum(side_of(each.package) == side for each in later),
        }
        for side in SIDES
    }


def _run(lane: Lane, study: Study, root: Path, work: Path, design: Design) -> list[Finding]:
    caches = work / "checker-caches"
    name = lane.checker.name
    return find(
        lane, root, [*study.files, PROBE_FILE], caches / f"{name}-{design.name}", caches / f"{name}-{WIDENED.name}"
    )[0]
