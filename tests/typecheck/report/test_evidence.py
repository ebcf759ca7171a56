from __future__ import annotations

from pathlib import Path

import pytest
from made_up_study import add_causes, add_costs, add_outside, result, write

from typecheck.corpus import Design
from typecheck.report.evidence import EvidenceError, read_evidence
from typecheck.report.outside import OutsideError, OutsideRow
from typecheck.results import ResultsError, write_result
from typecheck.study import labels


def test_what_is_not_there_yet_is_left_out(study: Path) -> None:
    evidence = read_evidence(study, labels())

    assert (evidence.causes, evidence.costs, evidence.outside) == (None, None, None)
    assert evidence.call_sites == {"held"}
    assert len(evidence.results) == len(labels())


def test_what_is_there_is_read(study: Path) -> None:
    costs = add_costs(study)
    add_causes(study)
    add_outside(study)

    evidence = read_evidence(study, labels())
    assert evidence.costs == costs
    assert evidence.causes is not None
    assert evidence.causes[0].cases == ("held/list/widened",)
    assert evidence.outside is not None
    assert evidence.outside.packages == {"some-plugin": "0.3"}
    assert evidence.outside.rows[2] == OutsideRow("generic-migrated", "mypy", "in_tree", 8, 1, 1, 1, 9, 7, 5, 8)
    assert len(evidence.outside.rows) == 4


def test_results_of_another_corpus_are_refused(study: Path) -> None:
    old = result(study, "mypy", "strict")
    missing = {key: row for key, row in old.findings.items() if key != "said/name"}
    _ = write_result(study / "results", type(old)("mypy", "strict", "1.0", missing, (), ()))

    with pytest.raises(
        EvidenceError, match=r"mypy-strict.toml was .*: it has no verdict on said/name/asserting, .* and 1 more; .*run"
    ):
        _ = read_evidence(study, labels())


def test_a_design_without_a_verdict_is_refused(study: Path) -> None:
    old = result(study, "mypy", "strict")
    cut = {
        key: {design: finding for design, finding in row.items() if (key, design) != ("said/name", Design.GENERIC)}
        for key, row in old.findings.items()
    }
    _ = write_result(study / "results", type(old)("mypy", "strict", "1.0", cut, (), ()))

    with pytest.raises(EvidenceError, match="said/name/generic"):
        _ = read_evidence(study, labels())


def test_a_missing_result_is_refused(study: Path) -> None:
    (study / "results" / "ty-all.toml").unlink()

    with pytest.raises(ResultsError, match=r"ty-all\.toml"):
        _ = read_evidence(study, labels())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('families = ["held", "gone"]', "cases/ has no family gone; it has held, said"),
        ("families = []", "families must be a list"),
        ("families =", r"call_sites\.toml: "),
    ],
)
def test_unknown_call_sites_are_refused(study: Path, text: str, message: str) -> None:
    write(study, "report/call_sites.toml", text)

    with pytest.raises(EvidenceError, match=message):
        _ = read_evidence(study, labels())


@pytest.mark.parametrize("text", ["{}", '{"packages": {}, "designs": [{"design": "x"}]}', "no"])
def test_malformed_figures_of_other_trees_are_refused(study: Path, text: str) -> None:
    write(study, "results/out-of-tree.json", text)

    with pytest.raises(OutsideError, match=r"python -m typecheck\.out_of_tree"):
        _ = read_evidence(study, labels())
