from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_up_study import add_costs

from typecheck.corpus import Design
from typecheck.explain import MYPY, PYRIGHT
from typecheck.report.evidence import read_evidence
from typecheck.report.figures import Count
from typecheck.report.summary import Aim, Size, Summary, summarise
from typecheck.study import labels

W, G = Design.WIDENED, Design.GENERIC


def test_the_size(summary: Summary) -> None:
    assert summary.size == Size(families=2, faults=4, expressible=3, common=2, cases=14, variants=2, files=14 + 8 + 13)


def test_shares_are_of_their_own_faults(summary: Summary) -> None:
    assert summary.every[MYPY][G] == Count(3, 4)
    assert summary.expressible[MYPY][G] == Count(3, 3)
    assert summary.common[MYPY][G] == Count(2, 2)
    assert summary.common[MYPY][W] == Count(2, 2)
    assert summary.call_sites[MYPY][G] == Count(2, 2)
    assert [family.grid[MYPY][G] for family in summary.families] == [Count(2, 2), Count(1, 2)]


@pytest.mark.parametrize(
    ("hits", "of", "alarms", "met"), [(19, 20, 0, True), (94, 100, 0, False), (20, 20, 1, False), (0, 0, 0, False)]
)
def test_the_aim_asks_for_both(hits: int, of: int, alarms: int, met: bool) -> None:
    assert Aim(MYPY, G, Count(hits, of), alarms).met is met


def test_aims_are_of_every_design_at_both_strictest(summary: Summary) -> None:
    assert {(aim.design, aim.label) for aim in summary.aims} == {(d, each) for d in Design for each in (MYPY, PYRIGHT)}
    assert [aim.met for aim in summary.aims if aim.design is G] == [True, False]


def test_the_ranking_prefers_what_catches_then_what_is_quiet_then_what_is_fast(study: Path, summary: Summary) -> None:
    assert [row.label for row in summary.ranking[:2]] == [MYPY, PYRIGHT]
    assert (summary.ranking[0].seconds, summary.ranking[0].alarms, summary.ranking[1].alarms) == (None, 0, 1)

    _ = add_costs(study)
    evidence = read_evidence(study, labels())
    quiet = [replace(result, alarms=()) for result in evidence.results]
    ranking = summarise(replace(evidence, results=tuple(quiet))).ranking
    assert [(row.label, row.seconds) for row in ranking[:2]] == [(PYRIGHT, 2.5), (MYPY, 8.4)]


def test_what_is_handed_on_is_in_the_core(summary: Summary) -> None:
    assert summary.written[G].core.guards == 1
    assert summary.written[W].core.casts == 1
    assert summary.written[W].core.anys == 2
    assert summary.written[W].authors.re_annotations == 1
    assert summary.written[G].spelling.by_argument == 1
    assert summary.written[G].spelling.characters == len(", FullSpec")
