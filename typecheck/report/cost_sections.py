"""What the designs cost: what is written, checking, run time, and errors in other projects' trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from typecheck.corpus import Design
from typecheck.costs.measured import REFERENCE, Cost, Costs
from typecheck.costs.writing import Writing
from typecheck.report.layout import Section, Table, rows
from typecheck.report.sections import DESIGNS
from typecheck.report.summary import Summary

__all__ = ["cost_sections"]

KINDS: tuple[tuple[str, Callable[[Writing], int]], ...] = (
    ("casts", lambda writing: writing.casts),
    ("asserts that something is an instance", lambda writing: writing.asserts),
    ("`Any`", lambda writing: writing.anys),
    ("type guards", lambda writing: writing.guards),
)
MORE: tuple[tuple[str, Callable[[Writing], int]], ...] = (
    ("tests of a spec's class", lambda writing: writing.spec_tests),
    ("lines of code", lambda writing: writing.lines),
    ("lines with annotations", lambda writing: writing.annotated),
    ("re-annotations of the spec in a class", lambda writing: writing.re_annotations),
    ("`__init__` of a builder that takes a spec", lambda writing: writing.narrowed_inits),
)


def cost_sections(summary: Summary) -> list[Section]:
    """In the order of the report."""
    return [_written(summary), *_measured(summary.costs), _outside(summary)]


def _written(summary: Summary) -> Section:
    core = {design: each.core for design, each in summary.written.items()}
    authors = {design: each.authors for design, each in summary.written.items()}
    spelling = {design: each.spelling for design, each in summary.written.items()}
    names = (
        ("builders", [each.builders for each in spelling.values()]),
        ("name their spec as a second type argument", [each.by_argument for each in spelling.values()]),
        ("re-annotate, narrow `__init__` or assert", [each.by_more for each in spelling.values()]),
        ("get it from a class between", [each.by_ancestor for each in spelling.values()]),
        ("write nothing: the base's", [each.by_default for each in spelling.values()]),
        ("whole lines for it", [each.lines for each in spelling.values()]),
        ("characters for it", [each.characters for each in spelling.values()]),
    )
    return Section(
        "What authors write",
        (
            "Escape hatches that the clean program needs to be accepted by every checker at its strictest. The core of "
            "the generic design is the library's own, which also does more than the small cores of the others.",
        ),
        (
            Table("Escape hatches in the core", ("kind", *DESIGNS), rows(_hatches(core))),
            Table("Escape hatches in what stands upon it", ("kind", *DESIGNS), rows(_hatches(authors))),
            Table(
                "Annotations in what stands upon it",
                ("kind", *DESIGNS),
                rows((kind, *(get(each) for each in authors.values())) for kind, get in MORE),
            ),
            Table("How builders say which spec they take", ("", *DESIGNS), rows((name, *row) for name, row in names)),
        ),
    )


def _hatches(written: Mapping[Design, Writing]) -> Iterator[tuple[object, ...]]:
    for kind, get in KINDS:
        yield (kind, *(get(each) for each in written.values()))
    for name in sorted({name for each in written.values() for name in each.ignores}):
        yield (f"`{name}: ignore`", *(each.ignores.get(name, 0) for each in written.values()))
    yield ("all", *(each.hatches for each in written.values()))


def _measured(costs: Costs | None) -> list[Section]:
    if costs is None:
        return [Section("Checking and run time", ("Not measured yet: `python -m typecheck measure` does.",))]
    missing = tuple(f"{label} gave nothing: {reason}." for label, reason in costs.missing.items())
    return [
        Section(
            "Checking time and memory",
            (
                f"A cold run over the design's own files, with all that they import: medians of {costs.rounds}, the "
                f"designs in turns, under Python {costs.python}. In brackets the ratio to {REFERENCE}: the seconds are "
                "this machine's, the ratio much less so.",
                *missing,
            ),
            (
                Table(
                    "Seconds",
                    ("level", *DESIGNS),
                    rows((each.label, *_costs(each.seconds, 2)) for each in costs.checking),
                ),
                Table(
                    "Most memory, MiB",
                    ("level", *DESIGNS),
                    rows((each.label, *_costs(each.mebibytes, 0)) for each in costs.checking),
                ),
            ),
        ),
        Section(
            "Run time",
            (
                f"Microseconds, medians of {costs.samples} samples in one process, the designs in turns; torch "
                f"{costs.torch}, one thread. In brackets the ratio to {REFERENCE}. Binding is done once for each group "
                "when an engine starts, building once for each batch.",
            ),
            (
                Table(
                    "Microseconds",
                    ("operation", *DESIGNS),
                    rows((each.operation, *_costs(each.microseconds, 2)) for each in costs.running),
                ),
            ),
        ),
    ]


def _costs(costs: Mapping[Design, Cost], digits: int) -> Iterator[str]:
    for design in Design:
        cost = costs.get(design)
        yield "not measured" if cost is None else f"{cost.median:.{digits}f} ({cost.ratio:.2f})"


def _outside(summary: Summary) -> Section:
    title = "In other projects' trees"
    if summary.outside is None:
        return Section(title, ("Not measured yet: `python -m typecheck.out_of_tree` does.",))
    packages = ", ".join(f"{name} {version}" for name, version in summary.outside.packages.items())
    return Section(
        title,
        (f"The base class patched in copies of: {packages}. New and gone errors are against the widened base.",),
        (
            Table(
                "By design, checker and side",
                (
                    "design",
                    "checker",
                    "side",
                    "new errors",
                    "gone",
                    "builders with a new one",
                    "packages with one",
                    "say a narrow spec",
                    "of them seen with it",
                    "refused by a bare class slot",
                ),
                rows(
                    (
                        row.design,
                        row.checker,
                        row.side.replace("_", " "),
                        row.new,
                        row.gone,
                        row.builders_broken,
                        row.projects_broken,
                        row.says_narrow,
                        row.sees_its_spec,
                        f"{row.class_slot_refuses}/{row.asked}",
                    )
                    for row in summary.outside.rows
                ),
            ),
        ),
    )
