from __future__ import annotations

from dataclasses import replace

import pytest

from typecheck.corpus import Design
from typecheck.explain import MYPY, PYRIGHT
from typecheck.report.evidence import Evidence
from typecheck.report.figures import (
    Count,
    Listed,
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

A, W, G, C = Design.ASSERTING, Design.WIDENED, Design.GENERIC, Design.COVARIANT


@pytest.mark.parametrize(("hits", "of", "share"), [(0, 0, 0.0), (3, 3, 100.0), (2, 3, 66.6), (1899, 2000, 94.9)])
def test_a_share_is_never_rounded_up(hits: int, of: int, share: float) -> None:
    assert Count(hits, of).per_cent == share


def test_caught_is_counted_of_what_can_be_made(evidence: Evidence) -> None:
    grid = catches(evidence.corpus.faults, evidence.results)

    assert grid[MYPY] == {A: Count(0, 3), W: Count(2, 3), G: Count(3, 4), C: Count(1, 4)}
    assert grid[PYRIGHT] == {A: Count(0, 3), W: Count(0, 3), G: Count(3, 4), C: Count(3, 4)}
    assert grid["ty-all"][G] == Count(0, 4)
    assert list(grid) == [result.label for result in evidence.results]


def test_what_all_designs_have_and_a_type_could_tell(evidence: Evidence) -> None:
    assert [fault.key for fault in common_faults(evidence.corpus.faults)] == ["held/list", "said/field"]


def test_two_checkers_side_by_side(evidence: Evidence) -> None:
    first, second = by_label(evidence.results)

    pair = pair_up(evidence.corpus.faults, first, second, W)
    assert (pair.both, pair.only_first, pair.only_second, pair.neither) == (
        (),
        ("held/list", "said/field"),
        (),
        ("said/name",),
    )
    pair = pair_up(evidence.corpus.faults, first, second, C)
    assert (pair.both, pair.only_first, pair.only_second, pair.neither) == (
        ("held/list",),
        (),
        ("held/slot", "said/field"),
        ("said/name",),
    )


def test_two_designs_side_by_side_on_what_both_have(evidence: Evidence) -> None:
    mypy, pyright = by_label(evidence.results)

    told = compare(evidence.corpus.faults, pyright, G, W)
    assert (told.gained, told.lost, told.both, told.neither) == (("held/list", "said/field"), (), 0, 1)
    told = compare(evidence.corpus.faults, mypy, C, G)
    assert (told.gained, told.lost, told.both, told.neither) == ((), ("held/slot", "said/field"), 1, 1)
    assert told.faults == 4


def test_a_strictest_result_that_is_not_there_is_named(evidence: Evidence) -> None:
    some = [result for result in evidence.results if result.label != PYRIGHT]

    with pytest.raises(LookupError, match="no result of pyright-strict; there are mypy-default"):
        _ = by_label(some)


def test_false_alarms_are_files_and_what_a_design_changes_stands_apart(evidence: Evidence) -> None:
    alarms = false_alarms(evidence.corpus, evidence.results)

    assert alarms.programs[PYRIGHT] == dict.fromkeys(Design, Count(1, 4))
    assert alarms.variants[PYRIGHT] == {A: Count(0, 2), W: Count(1, 2), G: Count(0, 1), C: Count(0, 2)}
    assert alarms.unchanged[PYRIGHT] == {A: Count(0, 0), W: Count(0, 0), G: Count(1, 1), C: Count(0, 0)}
    assert alarms.of(PYRIGHT, W) == 2
    assert alarms.of(PYRIGHT, G) == 1
    assert alarms.of(MYPY, G) == 0


def test_an_error_elsewhere_counts_only_where_the_mistake_is_missed(evidence: Evidence) -> None:
    grid = stray_cases(evidence.corpus, evidence.results)

    assert grid[PYRIGHT][W] == Count(1, 3)
    assert grid[PYRIGHT][G] == Count(0, 1)
    assert grid[MYPY][W] == Count(0, 1)


def test_one_error_of_several_checkers_is_listed_once_in_order_of_lines(evidence: Evidence) -> None:
    _, pyright = by_label(evidence.results)
    again = replace(pyright, checker="other", alarms=(replace(pyright.alarms[2], place="a.py:10"), *pyright.alarms))
    before = replace(pyright, checker="third", alarms=(replace(pyright.alarms[2], place="a.py:9"),))

    found = listed([pyright, again, before], "alarms")
    assert [each.place for each in found[:2]] == ["a.py:9", "a.py:10"]
    assert found[2] == Listed("designs/shared/all.py:1", "p", ("pyright-strict", "other-strict"))
    assert [each.place for each in listed([pyright], "strays")] == [
        "cases/held/list/generic.py:1",
        "cases/said/name/widened.py:2",
    ]


def test_the_best_pair_is_of_two_checkers(evidence: Evidence) -> None:
    first, second, together = best_pairs(evidence.corpus.faults, evidence.results, C)[0]

    assert together == Count(3, 4)
    assert second == PYRIGHT or first == PYRIGHT
    checkers = [
        (one.partition("-")[0], other.partition("-")[0]) for one, other, _ in best_pairs([], evidence.results, C)
    ]
    assert all(one != other for one, other in checkers)
