"""The questions that the study is for, answered in sentences that are put together from figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from typecheck.corpus import Design
from typecheck.costs.measured import Cost
from typecheck.explain import MYPY, PYRIGHT
from typecheck.report.figures import AIM, Count, Grid
from typecheck.report.outside import OutsideRow
from typecheck.report.summary import Summary

__all__ = ["Answer", "answer"]

BOTH = (MYPY, PYRIGHT)


@dataclass(frozen=True)
class Answer:
    """A question, what the figures say in a word or two, and the figures."""

    question: str
    verdict: str
    lines: tuple[str, ...]


def answer(summary: Summary) -> list[Answer]:
    """All of them."""
    return [
        _review(summary),
        _second_parameter(summary),
        _call_sites(summary),
        _checker(summary),
        _covariance(summary),
        _losses(summary),
    ]


def _review(summary: Summary) -> Answer:
    pairs = [each for each in summary.comparisons if each.other is Design.WIDENED]
    more = all(len(each.gained) > len(each.lost) for each in pairs)
    aims = [aim for aim in summary.aims if aim.design is Design.GENERIC]
    lines = [
        f"{each.label}: of {_n(each.faults, 'expressible fault')} that can be made in both designs, generic catches "
        f"{_n(len(each.gained), 'fault')} that widened misses, and misses "
        f"{_n(len(each.lost), 'fault')} that widened catches; {each.both} both catch, {each.neither} neither."
        for each in pairs
    ]
    lines += [
        f"The aim, {AIM} % of the expressible faults without a false alarm, is {'met' if aim.met else 'missed'} by "
        f"{aim.design} under {aim.label}: {_of(aim.caught)}, {_n(aim.alarms, 'file')} with a false alarm."
        for aim in aims
    ]
    verdict = (
        "By what checkers see, no: the generic design lets both catch more than the merged one."
        if more
        else "By what checkers see, it cannot be said that it was wrong: generic does not catch more under both."
    )
    return Answer("Was the review right to reject the generic design?", verdict, tuple(lines))


def _second_parameter(summary: Summary) -> Answer:
    generic, widened = (summary.written[design].spelling for design in (Design.GENERIC, Design.WIDENED))
    lines = [
        f"{design}: of {each.builders} builders, {each.by_argument} name their spec as a second type argument, "
        f"{each.by_more} by re-annotation, `__init__` or assert, {each.by_ancestor} get it from a class between, "
        f"{each.by_default} write nothing and take what the base takes; {each.characters} characters, "
        f"{_n(each.lines, 'whole line')}."
        for design, each in ((design, summary.written[design].spelling) for design in Design)
    ]
    lines.append(
        f"The default of the second parameter saves {generic.by_default} of the "
        f"{generic.by_default + generic.by_argument} direct subclasses from naming it."
    )
    lines += _outside_line(summary, "generic", "no builder changed, errors against widened", _broken)
    lines += _outside_line(
        summary, "generic-migrated", "builders that name their spec, errors against widened", _broken
    )
    cheaper = generic.characters <= widened.characters and generic.lines <= widened.lines
    verdict = (
        f"In what is written it costs less than it saves: {generic.characters} characters in place of "
        f"{widened.characters}, {_n(generic.lines, 'whole line')} in place of {widened.lines}."
        if cheaper
        else f"It costs {generic.characters - widened.characters} characters and "
        f"{generic.lines - widened.lines} lines more than the merged design."
    )
    return Answer("Reason 1: what does a second type parameter cost its authors?", verdict, tuple(lines))


def _call_sites(summary: Summary) -> Answer:
    lines = [
        f"{label}: " + ", ".join(f"{design} {_of(summary.call_sites[label][design])}" for design in Design) + "."
        for label in BOTH
    ]
    lines.append(f"Counted are the expressible faults of these families: {', '.join(summary.call_site_families)}.")
    for design in ("widened", "generic", "generic-migrated", "generic-covariant-migrated"):
        lines += _outside_line(
            summary,
            design,
            "builders that a bare `type[AttentionMetadataBuilder]` refuses",
            lambda row: f"{row.class_slot_refuses} of {row.asked}",
        )
    lines += _outside_line(
        summary,
        "generic-migrated-lookup",
        "what looks builders up says that it returns the bare class, errors",
        _broken,
    )
    better = all(
        summary.call_sites[label][Design.GENERIC].per_cent > summary.call_sites[label][Design.WIDENED].per_cent
        for label in BOTH
    )
    refused = [row for row in _outside(summary, "generic-migrated") if row.class_slot_refuses]
    bare = "A bare class does refuse builders that name their spec. " if refused else ""
    seen = "both checkers see" if better else "it is not so that both checkers see"
    verdict = f"{bare}With `Group` and adapters in its place, {seen} more of the mistakes made there than with widened."
    return Answer("Reason 2: what do bare classes at the call site cost?", verdict, tuple(lines))


def _checker(summary: Summary) -> Answer:
    best = summary.ranking[0]
    lines = [
        f"{row.label} {row.version}: {_of(row.caught)} of the expressible faults, "
        f"{_n(row.alarms, 'right file')} with an alarm, {_seconds(row.seconds)}."
        for row in summary.ranking[:4]
    ]
    lines += [f"{each.first} and {each.second} together: {_of(each.caught)}." for each in summary.partners[:1]]
    alarms = _n(best.alarms, "right file")
    verdict = f"{best.label}: {_of(best.caught)}, {alarms} with a false alarm, {_seconds(best.seconds)}."
    return Answer(
        "Which checker at which level should a back-end author of the generic design run?", verdict, tuple(lines)
    )


def _covariance(summary: Summary) -> Answer:
    pairs = [each for each in summary.comparisons if each.other is Design.COVARIANT]
    lines = [
        f"{each.label}: generic catches {_n(len(each.gained), 'fault')} that covariant misses{_named(each.gained)}, "
        f"and misses {len(each.lost)} that covariant catches{_named(each.lost)}; files with a false alarm: generic "
        f"{_alarms(summary, each.label, Design.GENERIC)}, covariant {_alarms(summary, each.label, Design.COVARIANT)}; "
        f"of unchanged one-parameter code generic refuses {_of_unchanged(summary, each.label, Design.GENERIC)}, "
        f"covariant {_of_unchanged(summary, each.label, Design.COVARIANT)}."
        for each in pairs
    ]
    for design in ("generic", "generic-covariant"):
        lines += _outside_line(summary, design, "no builder changed, errors against widened", _broken)
    ahead = sum(len(each.lost) - len(each.gained) for each in pairs)
    alarms = sum(_alarms(summary, label, Design.COVARIANT) - _alarms(summary, label, Design.GENERIC) for label in BOTH)
    catch = "more" if ahead > 0 else "less" if ahead < 0 else "as much"
    alarm = "more" if alarms > 0 else "fewer" if alarms < 0 else "as many"
    better = (ahead > 0 and alarms <= 0) or (ahead == 0 and alarms < 0)
    verdict = f"On these figures {'yes' if better else 'no'}: it catches {catch}, with {alarm} false alarms."
    return Answer("Should the library's core be covariant in its spec instead?", verdict, tuple(lines))


def _losses(summary: Summary) -> Answer:
    lines = [
        f"{each.label}: {each.other} catches what generic misses{_named(each.lost)}."
        for each in summary.comparisons
        if each.lost
    ]
    lines += [
        f"{label}: generic misses {_n(_missed(summary.expressible, label), 'expressible fault')} in all."
        for label in BOTH
    ]
    lines += list(_dearer(summary))
    verdict = f"In {_n(len(lines), 'place')} that the figures show."
    return Answer("Where does the generic design lose?", verdict, tuple(lines))


def _dearer(summary: Summary) -> Iterator[str]:
    """What takes at least a tenth longer than under the merged design."""
    if summary.costs is None:
        return
    for each in summary.costs.running:
        cost = each.microseconds[Design.GENERIC]
        if cost.ratio >= 1.1:
            yield f"At run time, {each.operation}: {_ratio(cost)} of widened, {cost.median:g} µs."
    for checked in summary.costs.checking:
        cost = checked.seconds[Design.GENERIC]
        if cost.ratio >= 1.1:
            yield f"Checked by {checked.label}: {_ratio(cost)} of widened, {cost.median:g} s."


def _outside_line(summary: Summary, design: str, what: str, tell: Callable[[OutsideRow], str]) -> list[str]:
    """One line, or none where it was not measured."""
    rows = _outside(summary, design)
    said = "; ".join(f"{row.checker}, {row.side.replace('_', ' ')}: {tell(row)}" for row in rows)
    return [f"In other projects' trees, {design}, {what}: {said}."] if rows else []


def _outside(summary: Summary, design: str) -> list[OutsideRow]:
    return [row for row in summary.outside.rows if row.design == design] if summary.outside else []


def _broken(row: OutsideRow) -> str:
    return f"{row.new} new, {row.gone} gone, in {_n(row.builders_broken, 'builder')}"


def _alarms(summary: Summary, label: str, design: Design) -> int:
    return summary.alarms.of(label, design)


def _of_unchanged(summary: Summary, label: str, design: Design) -> str:
    cell = summary.alarms.unchanged[label][design]
    return f"{cell.hits} of {_n(cell.of, 'program')}"


def _missed(grid: Grid, label: str) -> int:
    cell = grid[label][Design.GENERIC]
    return cell.of - cell.hits


def _named(keys: Sequence[str]) -> str:
    return f" ({', '.join(keys)})" if keys else ""


def _of(cell: Count) -> str:
    return f"{cell.hits} of {cell.of} ({cell.per_cent} %)"


def _n(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _seconds(seconds: float | None) -> str:
    return "time not measured" if seconds is None else f"{seconds:.1f} s cold"


def _ratio(cost: Cost) -> str:
    return f"{cost.ratio:.2f} times that" if cost.ratio < 10 else f"{cost.ratio:.0f} times that"
