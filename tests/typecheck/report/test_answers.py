from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from made_up_study import CAUGHT, add_costs, add_outside, result

from typecheck.corpus import Design
from typecheck.report.answers import Answer, answer
from typecheck.report.evidence import Evidence, read_evidence
from typecheck.report.summary import Summary, summarise
from typecheck.study import labels

W, G, C = Design.WIDENED, Design.GENERIC, Design.COVARIANT
Caught = Mapping[str, Mapping[str, tuple[Design, ...]]]


def told(answers: list[Answer], word: str) -> Answer:
    (found,) = [each for each in answers if word in each.question]
    return found


def with_caught(evidence: Evidence, study: Path, caught: Caught) -> Summary:
    results = tuple(
        replace(each, findings=result(study, each.checker, each.level, caught.get(each.label, {})).findings, alarms=())
        for each in evidence.results
    )
    return summarise(replace(evidence, results=results))


def test_the_review_is_judged_by_both_checkers(evidence: Evidence, study: Path) -> None:
    # Under mypy, generic and widened catch the same of what both have: no more, so no verdict against the review.
    assert "cannot be said" in told(answer(with_caught(evidence, study, CAUGHT)), "the review right").verdict

    better = {label: {"held/list": (G,)} for label in CAUGHT}
    summary = with_caught(evidence, study, better)
    said = told(answer(summary), "the review right")
    assert said.verdict.startswith("By what checkers see, no")
    assert "of 2 expressible faults" in said.lines[0]
    assert "generic catches 1 fault that widened misses, and misses 0 faults" in said.lines[0]


def test_the_aim_is_said_as_it_is(summary: Summary) -> None:
    lines = told(answer(summary), "the review right").lines

    assert "is met by generic under mypy-strict: 3 of 3 (100.0 %), 0 files" in lines[-2]
    assert "is missed by generic under pyright-strict: 3 of 3 (100.0 %), 1 file with" in lines[-1]


def test_the_second_parameter_is_weighed_in_characters(summary: Summary) -> None:
    said = told(answer(summary), "second type parameter")

    assert "10 characters in place of 23, 0 whole lines in place of 1." in said.verdict
    dear = replace(summary.written[G].spelling, characters=99)
    written = {**summary.written, G: replace(summary.written[G], spelling=dear)}
    assert (
        "costs 76 characters and -1 lines more"
        in told(answer(replace(summary, written=written)), "second type parameter").verdict
    )


def test_call_sites_are_answered_with_and_without_other_trees(evidence: Evidence, study: Path) -> None:
    worse = {label: {"held/list": (W,)} for label in CAUGHT}
    assert told(answer(with_caught(evidence, study, worse)), "call site").verdict.startswith(
        "With `Group` and adapters in its place, it is not so"
    )

    add_outside(study)
    outside = read_evidence(study, labels()).outside
    assert outside is not None
    held = replace(outside, rows=tuple(replace(row, class_slot_refuses=0) for row in outside.rows))
    assert "A bare class" not in told(answer(replace(summarise(evidence), outside=held)), "call site").verdict
    said = told(answer(summarise(read_evidence(study, labels()))), "call site")
    assert said.verdict.startswith("A bare class does refuse builders that name their spec. With `Group`")
    assert any(
        "generic-migrated" in line and "mypy, in tree: 8 of 9; mypy, out of tree: 0 of 9" in line for line in said.lines
    )


def test_the_best_checker_is_named_with_its_figures(study: Path) -> None:
    _ = add_costs(study)

    said = told(answer(summarise(read_evidence(study, labels()))), "Which checker")
    assert said.verdict == "mypy-strict: 3 of 3 (100.0 %), 0 right files with a false alarm, 8.4 s cold."
    assert "together: 3 of 3" in said.lines[-1]


def test_covariance_is_compared_in_catches_and_alarms(evidence: Evidence, study: Path) -> None:
    def verdict(caught: Caught) -> str:
        return told(answer(with_caught(evidence, study, caught)), "covariant").verdict

    assert verdict(CAUGHT) == "On these figures no: it catches less, with as many false alarms."
    assert verdict({}) == "On these figures no: it catches as much, with as many false alarms."
    assert verdict({"mypy-strict": {"held/list": (C,)}}).startswith("On these figures yes: it catches more")


def test_losses_have_names_and_costs(study: Path) -> None:
    _ = add_costs(study)
    evidence = read_evidence(study, labels())

    lines = told(answer(with_caught(evidence, study, {"mypy-strict": {"held/list": (W,)}})), "lose").lines
    assert "mypy-strict: widened catches what generic misses (held/list)." in lines
    assert "mypy-strict: generic misses 3 expressible faults in all." in lines
    assert "At run time, bind full: 40 times that of widened, 20 µs." in lines
    assert "Checked by pyright-strict: 1.25 times that of widened, 2.5 s." in lines
    assert not any("mypy-strict: 1.05" in line or "build a batch" in line for line in lines)
