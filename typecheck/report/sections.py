"""What the corpus and the checkers say: the matrix, mypy against pyright, false alarms, strays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from typecheck.corpus import Design
from typecheck.report.figures import AIM, Count, Grid, Listed
from typecheck.report.layout import Cell, Section, Table, Tone, cell, rows
from typecheck.report.summary import Summary

__all__ = ["DESIGNS", "sections"]

DESIGNS = tuple(str(design) for design in Design)


def sections(summary: Summary) -> list[Section]:
    """In the order of the report, without the answers, which stand before."""
    return [
        _size(summary),
        _matrix(summary),
        _families(summary),
        _side_by_side(summary),
        _alarms(summary),
        _strays(summary),
        _ranking(summary),
    ]


def _size(summary: Summary) -> Section:
    size = summary.size
    return Section(
        "What was checked",
        (
            f"{size.faults} faults in {size.families} families, {size.expressible} of which a type could express; each "
            f"is written in every design in which it can be made: {size.cases} files. {size.common} of the expressible "
            f"ones can be made in all {len(Design)} designs. {size.variants} right programs that look like mistakes. "
            f"{size.files} files in all.",
            "A fault is caught by an error on its marked line; rules of style do not count, and neither does an error "
            "elsewhere in the file.",
        ),
        (Table("Checkers", ("level", "version"), rows(summary.versions.items()), True),),
    )


def _matrix(summary: Summary) -> Section:
    aims = [
        (
            str(aim.design),
            aim.label,
            _count(aim.caught),
            aim.alarms,
            cell("met", Tone.GOOD) if aim.met else cell("missed", Tone.BAD),
        )
        for aim in summary.aims
    ]
    return Section(
        "What each checker catches under each design",
        ("Percentages are cut after the first decimal, not rounded: what is not reached is not shown as reached.",),
        (
            _grid("Caught, of all faults that can be made in the design", summary.every, share=False),
            _grid("Caught, of the expressible faults", summary.expressible),
            _grid(f"Caught, of the {summary.size.common} expressible faults that all designs have", summary.common),
            _grid("Caught, of the expressible faults at call sites", summary.call_sites),
            Table(
                f"The aim: {AIM} % of the expressible faults, and no false alarm",
                ("design", "level", "caught", "right files with an alarm", "aim"),
                rows(aims),
            ),
        ),
    )


def _families(summary: Summary) -> Section:
    labels = list(summary.versions)
    tables = [
        Table(
            f"{design}: caught, of the faults that can be made in it",
            ("family", *(label.replace("-", "\n") for label in labels)),
            rows(
                (family.title, *(_fraction(family.grid[label][design]) for label in labels))
                for family in summary.families
            ),
        )
        for design in Design
    ]
    return Section("By family", (), tuple(tables))


def _side_by_side(summary: Summary) -> Section:
    counts = [
        (str(design), len(pair.both), len(pair.only_first), len(pair.only_second), len(pair.neither))
        for design, pair in summary.pairs.items()
    ]
    cases = [
        (f"{key}/{design}", who)
        for design, pair in summary.pairs.items()
        for who, keys in (("mypy", pair.only_first), ("pyright", pair.only_second))
        for key in keys
    ]
    missed = [
        (key, ", ".join(design for design, pair in summary.pairs.items() if key in pair.neither))
        for key in sorted({key for pair in summary.pairs.values() for key in pair.neither})
    ]
    causes = summary.causes
    why = {case: cause.title for cause in causes or () for case in cause.cases}
    return Section(
        "mypy against pyright, both at their strictest",
        () if causes is not None else ("Why they differ is not explained yet.",),
        (
            Table("Cases", ("design", "both", "only mypy", "only pyright", "neither"), rows(counts)),
            Table(
                "On which they differ",
                ("case", "reported by", "why"),
                rows((case, who, why.get(case, "not explained yet")) for case, who in cases),
                True,
            ),
            Table(
                "Why they differ",
                ("cause", "reported by", "why", "sources"),
                rows((each.title, each.only, each.why, "\n".join(each.sources)) for each in causes or ()),
                True,
            ),
            Table("Caught by neither", ("fault", "in"), rows(missed), True),
        ),
    )


def _alarms(summary: Summary) -> Section:
    return Section(
        "False alarms",
        (
            "Files with an error, of files that are right. What the designs share counts for each of them. Variants "
            "that are code of the one-parameter base, which a design asks to change, stand apart: what is reported "
            "there is the price of moving to the design, and not a false alarm.",
        ),
        (
            _grid("Clean programs", summary.alarms.programs, share=False, few=True),
            _grid("Variants in the design's own idiom", summary.alarms.variants, share=False, few=True),
            _grid("Variants that the design asks to change", summary.alarms.unchanged, share=False, few=True),
            _list("Where", summary.alarm_list),
        ),
    )


def _strays(summary: Summary) -> Section:
    return Section(
        "Errors elsewhere",
        ("Missed cases in which something else than the mistake is reported. They do not count as caught.",),
        (
            _grid("Missed cases with an error elsewhere, of missed cases", summary.stray_cases, share=False, few=True),
            _list("Every error beside a mistake, also where the mistake is caught", summary.strays),
        ),
    )


def _ranking(summary: Summary) -> Section:
    ranked = [
        (
            each.label,
            _count(each.caught),
            each.alarms,
            each.strays,
            "not measured" if each.seconds is None else f"{each.seconds:.2f}",
        )
        for each in summary.ranking
    ]
    partners = [(f"{each.first} and {each.second}", _count(each.caught)) for each in summary.partners]
    return Section(
        "Which checker a back-end author should run",
        ("On the generic design: by expressible faults caught, then by fewest false alarms, then by time.",),
        (
            Table(
                "Checker-levels",
                ("level", "caught", "right files with an alarm", "reported elsewhere only", "seconds, cold"),
                rows(ranked),
            ),
            Table("The best pairs of two checkers", ("levels", "caught by one or both"), rows(partners)),
        ),
    )


def _grid(title: str, grid: Grid, *, share: bool = True, few: bool = False) -> Table:
    """``few``: hits are bad; else they are good."""
    show = _count if share else _fraction
    return Table(
        title,
        ("level", *DESIGNS),
        rows((label, *(show(row[design], few) for design in Design)) for label, row in grid.items()),
    )


def _list(title: str, places: Iterable[Listed]) -> Table:
    return Table(title, ("place", "code", "reported by"), rows(_lines(places)), True)


def _lines(places: Iterable[Listed]) -> Iterator[tuple[str, str, str]]:
    for each in places:
        yield each.place, each.code, ", ".join(each.labels)


def _count(count: Count, few: bool = False) -> Cell:
    return cell(f"{count.per_cent} % ({count.hits}/{count.of})" if count.of else "none", _tone(count, few))


def _fraction(count: Count, few: bool = False) -> Cell:
    return cell(f"{count.hits}/{count.of}" if count.of else "none", _tone(count, few))


def _tone(count: Count, few: bool) -> Tone:
    if not count.of:
        return Tone.PLAIN
    if few:
        return Tone.BAD if count.hits else Tone.GOOD
    return Tone.GOOD if count.hits * 100 >= AIM * count.of else Tone.BAD if count.hits * 2 < count.of else Tone.PLAIN
