"""Measures every design: lays its tree out, runs the checkers, and puts the figures together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from typecheck.out_of_tree import layout
from typecheck.out_of_tree.checking import LANES, Finding, Lane, find
from typecheck.out_of_tree.delta import Change, Places, compare, tally
from typecheck.out_of_tree.designs import WIDENED, Design, patch_base
from typecheck.out_of_tree.inventory import Builder, Hatches, Inventory, Tree, take_inventory
from typecheck.out_of_tree.migrate import migrate_file
from typecheck.out_of_tree.packages import VLLM, Unpacked
from typecheck.out_of_tree.probe import PROBE_FILE, QUESTIONS, ProbeModule, probe_module, reveal_sites

__all__ = ["Study", "measure"]

_BASE_FILE = "vllm/v1/attention/backend.py"
_WORDS = re.compile(
    r"\b(\w*MetadataBuilder|get_builder_cls|get_metadata_builder|metadata_builders|AttentionGroup|get_cudagraph_support)\b"
)
Json = dict[str, object]


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
            tuple(sources), tree, inventory, tuple(files), shims, mended, tuple(broken), probe_module(inventory.builders)
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


def measure(study: Study, designs: Sequence[Design], work: Path, say: Callable[[str], None]) -> list[Json]:
    """The figures of each design; the first one has to be the widened base, with which the others are compared."""
    if not designs or designs[0] != WIDENED:
        raise ValueError("the first design must be the widened base: the others are compared with it")
    results: list[Json] = []
    baseline: dict[str, tuple[list[Finding], Places]] = {}
    for design in designs:
        prepared = _lay_out(study, design, work)
        result: Json = {"design": design.name, "base_parameters": design.parameters, **prepared.figures}
        checkers: Json = {}
        for lane in LANES:
            name = lane.checker.name
            say(f"{design.name}: {name}")
            findings, _ = _run(lane, study, prepared.root, work, design)
            if design == WIDENED:
                baseline[name] = findings, prepared.places
            before, places = baseline[name]
            checkers[name] = _figures(study, findings, before, places, prepared)
        result["checkers"] = checkers
        results.append(result)
    return results


@dataclass(frozen=True)
class _Prepared:
    root: Path
    places: Places
    sites: dict[tuple[str, int], list[str]]
    figures: Json


def _lay_out(study: Study, design: Design, work: Path) -> _Prepared:
    root = work / "trees" / design.name
    changed = dict(study.shims)
    plain = study.tree.root
    changed[_BASE_FILE] = patch_base((plain / _BASE_FILE).read_text(encoding="utf-8"), design)
    by_path = study.builders_by_path()
    migrated = [0, 0, 0]
    if design.migrated:
        for path, builders in by_path.items():
            done = migrate_file(changed.get(path) or (plain / path).read_text(encoding="utf-8"), builders)
            changed[path] = done.code
            migrated = [old + new for old, new in zip(migrated, (done.bases, done.re_annotations, done.asserts), strict=True)]
    sites: dict[tuple[str, int], list[str]] = {}
    for path in study.files:
        text = changed.get(path) or (plain / path).read_text(encoding="utf-8")
        lines = [(builder.line, builder.end) for builder in by_path.get(path, [])]
        if path == _BASE_FILE:
            continue
        revealed = reveal_sites(text, lines)
        changed[path] = revealed.code
        for line, method in revealed.sites:
            sites.setdefault((path, line), []).append(method)
    changed[PROBE_FILE] = study.probe.code
    layout.lay_out(root, study.sources, changed)
    names = {path: frozenset(builder.name for builder in builders) for path, builders in by_path.items()}
    figures: Json = {
        "migrated_builders": migrated[0],
        "re_annotations_dropped": migrated[1],
        "asserts_dropped": migrated[2],
        "hatches": _hatches(study, root),
        "import_time_type_errors": _import_errors(study, design, migrated[0]),
    }
    return _Prepared(root, Places(root, names), sites, figures)


def _hatches(study: Study, root: Path) -> Json:
    inventory = take_inventory(Tree(root, study.tree.packages)) if root != study.tree.root else study.inventory
    result: Json = {}
    for package in study.tree.packages:
        builders = inventory.of(package)
        if builders:
            total = sum((builder.hatches for builder in builders), Hatches())
            result[package] = dict(vars(total))
    return result


def _import_errors(study: Study, design: Design, migrated: int) -> Json:
    """Type arguments that do not fit the base when a module is imported, judged from the syntax."""
    one = [each for each in study.inventory.builders if each.direct and each.arguments == 1]
    has_default = design.type_variable is None or "default=" in design.type_variable
    return {
        "on_this_base": 0 if has_default else len(one),
        "of_this_code_on_a_one_parameter_base": migrated,
    }


def _run(
    lane: Lane, study: Study, root: Path, work: Path, design: Design
) -> tuple[list[Finding], str]:
    cache = work / "checker-caches" / f"{lane.checker.name}-{design.name}"
    warm = work / "checker-caches" / f"{lane.checker.name}-{WIDENED.name}"
    return find(lane, root, [*study.files, PROBE_FILE], cache, warm)


def _figures(
    study: Study, findings: Sequence[Finding], before: Sequence[Finding], places: Places, prepared: _Prepared
) -> Json:
    def without_probe(each: Sequence[Finding]) -> list[Finding]:
        return [finding for finding in each if finding.path != PROBE_FILE]

    delta = compare(without_probe(before), without_probe(findings), places, prepared.places)
    errors = Counter(each.path.partition("/")[0] for each in without_probe(findings) if each.kind == "error")
    return {
        "errors": dict(sorted(errors.items())),
        "new": {"counts": tally(delta.new), "errors": [_audit(each) for each in delta.new]},
        "gone": {"counts": tally(delta.gone), "errors": [_audit(each) for each in delta.gone]},
        "reworded": delta.reworded,
        "builders": _answers(study, [each for each in findings if each.path == PROBE_FILE]),
        "call_sites": _call_sites(findings, prepared),
    }


def _audit(change: Change) -> Json:
    finding = change.finding
    return {
        "at": f"{finding.path}:{finding.line}",
        "in": change.scope,
        "kind": change.kind,
        "code": finding.code,
        "message": finding.message,
    }


def _answers(study: Study, findings: Sequence[Finding]) -> Json:
    by_line: dict[int, list[Finding]] = {}
    for each in findings:
        by_line.setdefault(each.line, []).append(each)
    packages: dict[str, Json] = {}
    for builder, first in zip(study.probe.builders, study.probe.first_lines, strict=True):
        row = packages.setdefault(builder.package, {"asked": 0, "attribute": Counter[str]()})
        _add(row, "asked", 1)
        for offset, question in enumerate(QUESTIONS):
            here = by_line.get(first + offset, [])
            if question == "attribute":
                types = row["attribute"]
                assert isinstance(types, Counter)
                types[_short(next((each.message for each in here if each.kind == "reveal"), "no answer"))] += 1
            else:
                refused = any(each.kind == "error" and _is_about_wide(each.message, question) for each in here)
                _add(row, f"{question}_refuses", int(refused))
    return {package: {**row, "attribute": _sorted(row["attribute"])} for package, row in packages.items()}


def _add(row: Json, key: str, amount: int) -> None:
    old = row.get(key, 0)
    row[key] = amount + (old if isinstance(old, int) else 0)


def _sorted(counter: object) -> Json:
    if not isinstance(counter, Counter):
        return {}
    return {str(key): count for key, count in sorted(counter.items(), key=lambda pair: (-pair[1], str(pair[0])))}


def _is_about_wide(message: str, question: str) -> bool:
    if question in ("class_slot", "instance_slot"):
        return "AttentionMetadataBuilder" in message
    return 'has incompatible type "KVCacheSpec"' in message or 'Argument of type "KVCacheSpec"' in message


def _short(text: str) -> str:
    """A type without module paths, ``Unknown`` as ``Any``, and without the marks of inferred variables."""
    text = re.sub(r"\b(?:\w+\.)+(\w)", r"\1", text).replace("Unknown", "Any").rstrip("?")
    return re.sub(r"@\w+|`-?\d+", "", text)


def _call_sites(findings: Sequence[Finding], prepared: _Prepared) -> Json:
    rows: dict[str, dict[str, Counter[str]]] = {}
    left = {place: list(methods) for place, methods in prepared.sites.items()}
    for each in findings:
        methods = left.get((each.path, each.line))
        if each.kind != "reveal" or not methods:
            continue
        package = each.path.partition("/")[0]
        method = methods.pop(0)
        rows.setdefault(package, {}).setdefault(method, Counter())[_short(each.message)] += 1
    for (path, _), methods in left.items():
        for method in methods:
            rows.setdefault(path.partition("/")[0], {}).setdefault(method, Counter())["not analysed"] += 1
    return {
        package: {method: _sorted(types) for method, types in sorted(methods.items())}
        for package, methods in sorted(rows.items())
    }


def describe(study: Study) -> Json:
    """The sources and the builders in them, as the results state them."""
    return {
        "packages": {
            source.package.name: {
                "version": source.package.version,
                "wheel": source.wheel,
                "sha256": source.sha256,
                "files_checked": sum(path.startswith(f"{source.package.module}/") for path in study.files),
            }
            for source in study.sources
        },
        "builders": {package: _count(study.inventory.of(package)) for package in study.tree.packages},
        "not_judged": [f"{path}:{line}: {name}({bases})" for path, line, name, bases in study.inventory.unjudged],
        "imports_mended": {origin: [f"{name} from {home}" for name, home in names] for origin, names in study.mended.items()},
        "imports_left_broken": list(study.broken),
        "tools": {name: version(name) for name in ("mypy", "pyright", "libcst", "torch", "typing_extensions")},
        "reference": VLLM.name,
    }


def _count(builders: Sequence[Builder]) -> Json:
    direct = [each for each in builders if each.direct]
    hooks = Counter(hint or "(none)" for each in builders for hint in each.hook_hints.values())
    said = Counter((each.own_spec or "(none)") for each in builders)
    return {
        "builders": len(builders),
        "direct": len(direct),
        "direct_with_one_argument": sum(each.arguments == 1 for each in direct),
        "direct_without_argument": sum(each.arguments == 0 for each in direct),
        "direct_with_a_narrow_spec": sum(each.narrow for each in direct),
        "indirect": sum(not each.direct and not each.dynamic_base for each in builders),
        "indirect_with_a_spec_of_their_own": sum(
            each.narrow and not each.direct and not each.dynamic_base for each in builders
        ),
        "made_in_functions": sum(each.nested for each in builders),
        "base_known_at_run_time_only": sum(each.dynamic_base for each in builders),
        "spec_said": _sorted(said),
        "hook_overrides": _sorted(hooks),
    }
