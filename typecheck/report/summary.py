"""All figures of a report in one place, each worked out once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from typecheck.corpus import Corpus, Design, Fault
from typecheck.costs.measured import Costs
from typecheck.costs.parameter import Spelling, spelled
from typecheck.costs.sources import sources
from typecheck.costs.writing import Writing, count, total
from typecheck.explain import MYPY, PYRIGHT, Cause
from typecheck.report.evidence import Evidence
from typecheck.report.figures import (
    AIM,
    Alarms,
    Comparison,
    Count,
    FamilyCatches,
    Grid,
    Listed,
    Pair,
    best_pairs,
    by_label,
    catches,
    common_faults,
    compare,
    false_alarms,
    listed,
    pair_up,
    stray_cases,
)
from typecheck.report.outside import Outside
from typecheck.verdict import Result

__all__ = ["Aim", "Partners", "Ranked", "Size", "Summary", "Written", "summarise"]


@dataclass(frozen=True)
class Size:
    """How much was checked: ``common`` faults are expressible and can be made in every design."""

    families: int
    faults: int
    expressible: int
    common: int
    cases: int
    variants: int
    files: int


@dataclass(frozen=True)
class Aim:
    """A design under one checker-level, held against what was aimed at."""

    label: str
    design: Design
    caught: Count
    alarms: int

    @property
    def met(self) -> bool:
        """Whether it catches enough of the expressible faults, without a false alarm."""
        return self.caught.of > 0 and self.caught.hits * 100 >= AIM * self.caught.of and not self.alarms


@dataclass(frozen=True)
class Written:
    """What one design makes its authors write: in its core, and upon it."""

    core: Writing
    authors: Writing
    spelling: Spelling


@dataclass(frozen=True)
class Ranked:
    """One checker-level as a back-end author of the generic design meets it.

    Attributes:
        label: such as ``mypy-strict``.
        version: the checker's.
        caught: of the expressible faults.
        alarms: right files in which it reports something.
        strays: missed cases in which it reports something, but elsewhere.
        seconds: a cold run over the design's files; ``None``: not measured.
    """

    label: str
    version: str
    caught: Count
    alarms: int
    strays: int
    seconds: float | None


@dataclass(frozen=True)
class Partners:
    """Two checker-levels together on the generic design."""

    first: str
    second: str
    caught: Count


@dataclass(frozen=True)
class Summary:
    """What the layouts and the answers are made of. Attributes without a word here are what their type says.

    Attributes:
        versions: by checker-level.
        every: caught, of all faults.
        expressible: of those that a type could tell.
        common: of those of them that can be made in every design.
        call_sites: of the expressible ones made where builders are held and called.
        alarms: right files in which something is reported, by kind.
        alarm_list: each such report.
        stray_cases: missed cases with an error elsewhere in the file.
        comparisons: of the generic design with each other one.
        ranking: the best checker-level first.
    """

    size: Size
    versions: Mapping[str, str]
    families: tuple[FamilyCatches, ...]
    every: Grid
    expressible: Grid
    common: Grid
    call_sites: Grid
    call_site_families: tuple[str, ...]
    aims: tuple[Aim, ...]
    pairs: Mapping[Design, Pair]
    causes: tuple[Cause, ...] | None
    alarms: Alarms
    alarm_list: tuple[Listed, ...]
    stray_cases: Grid
    strays: tuple[Listed, ...]
    written: Mapping[Design, Written]
    comparisons: tuple[Comparison, ...]
    ranking: tuple[Ranked, ...]
    partners: tuple[Partners, ...]
    costs: Costs | None
    outside: Outside | None


def summarise(evidence: Evidence) -> Summary:
    """Work all of it out.

    Raises:
        LookupError: mypy's or pyright's strictest result is not there.
    """
    corpus, results = evidence.corpus, evidence.results
    mypy, pyright = by_label(results)
    faults = corpus.faults
    expressible = [fault for fault in faults if fault.expressible]
    common = common_faults(faults)
    held = [fault for fault in expressible if fault.family in evidence.call_sites]
    alarms = false_alarms(corpus, results)
    caught, strays = catches(expressible, results), stray_cases(corpus, results)
    return Summary(
        size=_size(corpus, expressible, common),
        versions={result.label: result.version for result in results},
        families=tuple(
            FamilyCatches(family.name, family.title, len(family.faults), catches(family.faults, results))
            for family in corpus.families
        ),
        every=catches(faults, results),
        expressible=caught,
        common=catches(common, results),
        call_sites=catches(held, results),
        call_site_families=tuple(sorted(evidence.call_sites)),
        aims=tuple(
            Aim(label, design, caught[label][design], alarms.of(label, design))
            for design in Design
            for label in (MYPY, PYRIGHT)
        ),
        pairs={design: pair_up(faults, mypy, pyright, design) for design in Design},
        causes=evidence.causes,
        alarms=alarms,
        alarm_list=tuple(listed(results, "alarms")),
        stray_cases=strays,
        strays=tuple(listed(results, "strays")),
        written={design: _written(corpus, design) for design in Design},
        comparisons=tuple(
            compare(expressible, result, Design.GENERIC, other)
            for other in Design
            if other is not Design.GENERIC
            for result in (mypy, pyright)
        ),
        ranking=_ranking(evidence, caught, alarms, strays),
        partners=tuple(Partners(*each) for each in best_pairs(expressible, results, Design.GENERIC)[:5]),
        costs=evidence.costs,
        outside=evidence.outside,
    )


def _size(corpus: Corpus, expressible: Sequence[Fault], common: Sequence[Fault]) -> Size:
    return Size(
        families=len(corpus.families),
        faults=len(corpus.faults),
        expressible=len(expressible),
        common=len(common),
        cases=sum(len(fault.cases) for fault in corpus.faults),
        variants=len({variant.key for variant in corpus.variants}),
        files=len(corpus.files),
    )


def _written(corpus: Corpus, design: Design) -> Written:
    texts = sources(corpus, design)
    return Written(
        total(count(text) for text in texts.core),
        total(count(text) for text in texts.authors),
        spelled(texts.back_ends),
    )


def _ranking(evidence: Evidence, caught: Grid, alarms: Alarms, strays: Grid) -> tuple[Ranked, ...]:
    checking = evidence.costs.checking if evidence.costs else ()
    seconds = {each.label: each.seconds[Design.GENERIC].median for each in checking}
    rows = [_ranked(result, caught, alarms, strays, seconds) for result in evidence.results]
    # Without a time it is last among equals.
    return tuple(
        sorted(
            rows,
            key=lambda row: (-row.caught.hits, row.alarms, row.seconds is None, row.seconds or 0.0, row.label),
        )
    )


def _ranked(result: Result, caught: Grid, alarms: Alarms, strays: Grid, seconds: Mapping[str, float]) -> Ranked:
    label, design = result.label, Design.GENERIC
    return Ranked(
        label,
        result.version,
        caught[label][design],
        alarms.of(label, design),
        strays[label][design].hits,
        seconds.get(label),
    )
