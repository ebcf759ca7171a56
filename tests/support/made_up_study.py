"""A small study on disk, with results that are made up, for the report to be read from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from typecheck.corpus import Design, read_corpus
from typecheck.costs.measured import Checking, Cost, Costs, Running, write_costs
from typecheck.results import write_result
from typecheck.study import pairs
from typecheck.verdict import Finding, Result, Stray

__all__ = ["CAUGHT", "a_study", "add_causes", "add_costs", "add_outside", "result", "write"]

A, W, G, C = Design.ASSERTING, Design.WIDENED, Design.GENERIC, Design.COVARIANT
MISTAKE = '"""{}\n\nAt run time: KeyError: x\n"""\n\nx = 1\ny = x  # E\n'
FAMILIES: Mapping[str, tuple[str, Mapping[str, tuple[bool, tuple[Design, ...]]]]] = {
    "held": ("Held & looked up", {"list": (True, ()), "slot": (True, (A, W))}),
    "said": ("Said <wrongly>", {"field": (True, ()), "name": (False, ())}),
}
# What mypy and pyright at their strictest catch; every other one catches nothing.
CAUGHT: Mapping[str, Mapping[str, tuple[Design, ...]]] = {
    "mypy-strict": {"held/list": (W, G, C), "held/slot": (G,), "said/field": (W, G)},
    "pyright-strict": {"held/list": (G, C), "held/slot": (G, C), "said/field": (G, C)},
}
PROGRAM = '"""A program."""\n'
CORE = {
    W: '"""Core."""\n\nfrom typing import Any, cast\n\n\nclass Base:\n    x: Any = cast("Any", 1)\n',
    G: '"""Core."""\n\nfrom study_core.adapter import Adapter\n\n__all__ = ["Adapter"]\n',
}
BUILDERS = {
    W: '"""B."""\n\n\nclass FullBuilder(AttentionMetadataBuilder[M]):\n    kv_cache_spec: FullSpec\n',
    G: '"""B."""\n\n\nclass FullBuilder(AttentionMetadataBuilder[M, FullSpec]):\n    pass\n',
}


def a_study(folder: Path) -> Path:
    """Four faults in two families, one variant of each kind, and a result for every checker and level."""
    study = folder / "study"
    write(folder, "study_core/adapter.py", '"""A."""\n\n\ndef narrow(x: object) -> TypeGuard[int]:\n    return True\n')
    for design in Design:
        write(study, f"designs/{design}/program.py", PROGRAM)
        write(study, f"designs/{design}/core.py", CORE.get(design, PROGRAM))
        write(study, f"designs/{design}/attention.py", BUILDERS.get(design, PROGRAM))
        write(study, f"variants/held/right/{design}.py", '"""It is right."""\n')
        write(study, f"variants/held/old/{design}.py", '"""It is right."""\n')
    write(study, "designs/shared/all.py", '"""Shared."""\n')
    write(study, "variants/held/family.toml", '[variants.old]\nunchanged.generic = "names its spec"\n')
    write(study, "report/call_sites.toml", 'families = ["held"]\n')
    for family, (title, faults) in FAMILIES.items():
        lines = [f'title = "{title}"']
        for name, (expressible, absent) in faults.items():
            lines += [f"[cases.{name}]", f"expressible = {str(expressible).lower()}", 'reason = "so"']
            lines += [f'absent.{design} = "has no slot"' for design in absent]
            for design in Design:
                if design not in absent:
                    write(study, f"cases/{family}/{name}/{design}.py", MISTAKE.format(f"The author <erred> in {name}."))
        write(study, f"cases/{family}/family.toml", "\n".join(lines) + "\n")
    for checker, level in pairs():
        write_result(study / "results", result(study, checker.name, level.name))
    return study


def result(study: Path, checker: str, level: str, caught: Mapping[str, tuple[Design, ...]] | None = None) -> Result:
    """What one checker-level says; pyright-strict also errs on right files and beside a mistake."""
    wanted = CAUGHT.get(f"{checker}-{level}", {}) if caught is None else caught
    findings = {
        fault.key: {
            design: Finding(("<code>",)) if design in wanted.get(fault.key, ()) else Finding() for design in fault.cases
        }
        for fault in read_corpus(study).faults
    }
    if (checker, level) != ("pyright", "strict"):
        return Result(checker, level, "1.0", findings, (), ())
    strays = (Stray("cases/held/list/generic.py:1", "s"), Stray("cases/said/name/widened.py:2", "s"))
    alarms = (
        Stray("designs/shared/all.py:1", "p"),
        Stray("variants/held/old/generic.py:1", "v"),
        Stray("variants/held/right/widened.py:1", "v"),
        Stray("variants/held/right/widened.py:2", "v"),
    )
    return Result(checker, level, "1.1", findings, strays, alarms)


def add_costs(study: Path) -> Costs:
    """Costs of which generic is dearer in binding, and mypy slower than pyright."""

    def spread(median: float, generic: float) -> dict[Design, Cost]:
        return {
            design: Cost(median * ratio, median * ratio, median * ratio, ratio)
            for design, ratio in ((A, 1.0), (W, 1.0), (G, generic), (C, 1.0))
        }

    costs = Costs(
        "3.11.0",
        "2.0",
        3,
        60,
        (
            Checking("mypy", "strict", "1.0", spread(8.0, 1.05), spread(700.0, 1.0)),
            Checking("pyright", "strict", "1.1", spread(2.0, 1.25), spread(300.0, 1.0)),
        ),
        (Running("bind full", spread(0.5, 40.0)), Running("build a batch", spread(60.0, 1.0))),
        {"zuban-strict": "missing: it is not there"},
    )
    write_costs(study / "results" / "costs.json", costs)
    return costs


def add_causes(study: Path) -> None:
    """One of the differences, explained."""
    text = '[[cause]]\ntitle = "A reason"\nonly = "mypy"\nwhy = "because"\nsources = ["https://example.org/spec"]\n'
    write(study, "differences.toml", text + 'cases = ["held/list/widened"]\n')


def add_outside(study: Path) -> None:
    """Two designs in other trees."""

    def side(number: int) -> dict[str, dict[str, int]]:
        summary = {"new": number, "gone": 1, "builders_broken": 1, "projects_broken": 1}
        builders = {"asked": 9, "says_narrow": 7, "sees_its_spec": 5, "class_slot_refuses": number}
        return {"summary": summary, "builders": builders}

    def design(name: str, number: int) -> dict[str, object]:
        inside, outside = side(number), side(0)
        both = {key: {"in_tree": inside[key], "out_of_tree": outside[key]} for key in ("summary", "builders")}
        return {"design": name, "checkers": {"mypy": both}}

    table = {
        "packages": {"some-plugin": {"version": "0.3"}},
        "designs": [design("generic", 0), design("generic-migrated", 8)],
    }
    write(study, "results/out-of-tree.json", json.dumps(table))


def write(folder: Path, name: str, text: str) -> None:
    """A file below ``folder``."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    _ = path.write_text(text, encoding="utf-8")
