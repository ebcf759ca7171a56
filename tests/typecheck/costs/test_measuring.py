from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns

import pytest

from genericbuilders.checkers import CHECKERS, Checker, Level, Run, Status
from typecheck.corpus import Design
from typecheck.costs.checking import measure_checking
from typecheck.costs.running import measure_running
from typecheck.costs.subjects import subjects

W, G = Design.WIDENED, Design.GENERIC
FILES = {design: [Path(f"/{design}.py")] for design in Design}
MYPY, PYRIGHT = CHECKERS[:2]


class Stand:
    """Runs nothing; remembers for which design it was asked, and takes as long as it is told."""

    def __init__(self, seconds: Callable[[Design], float], bad: Checker | None = None) -> None:
        self.seconds = seconds
        self.bad = bad
        self.asked: list[Design] = []

    def __call__(self, checker: Checker, level: Level, files: Iterable[Path]) -> Run:
        (path,) = files
        design = Design(path.stem)
        self.asked.append(design)
        status, reason = (Status.MISSING, "it is not there\nat all") if checker is self.bad else (Status.OK, None)
        return Run(
            checker.name, level.name, "1.0", status, reason, seconds=self.seconds(design), peak_bytes=len(design) << 20
        )


def test_designs_take_turns_and_begin_in_turns() -> None:
    stand = Stand(lambda design: 3.0 if design is G else 2.0)

    measured = measure_checking(FILES, [(MYPY, MYPY.level("strict"))], 5, lambda _: None, stand)
    every = list(Design)
    assert stand.asked == every + every[1:] + every[:1] + every[2:] + every[:2] + every[3:] + every[:3] + every
    (mypy,) = measured.checking
    assert (mypy.label, mypy.version) == ("mypy-strict", "1.0")
    assert mypy.seconds[G].ratio == 1.5
    assert mypy.mebibytes[W].median == len("widened")
    assert measured.missing == {}


def test_a_checker_that_is_missing_is_named_and_the_rest_go_on() -> None:
    stand = Stand(lambda _: 1.0, bad=MYPY)
    said: list[str] = []
    wanted = [(MYPY, MYPY.level("strict")), (PYRIGHT, PYRIGHT.level("strict"))]

    measured = measure_checking(FILES, wanted, 3, said.append, stand)
    assert measured.missing == {"mypy-strict": "missing: it is not there"}
    assert [each.label for each in measured.checking] == ["pyright-strict"]
    assert len(stand.asked) == 1 + 3 * len(Design)
    assert said[0] == "mypy-strict: missing: it is not there"


def busy(nanoseconds: int) -> Callable[[], object]:
    def operation() -> None:
        end = perf_counter_ns() + nanoseconds
        while perf_counter_ns() < end:
            pass

    return operation


def test_what_takes_ten_times_as_long_is_seen_to() -> None:
    operations = {design: {"wait": busy(300_000 if design is G else 30_000)} for design in Design}

    (wait,) = measure_running(operations, 5)
    assert wait.operation == "wait"
    assert wait.microseconds[G].median >= 300
    # Waiting costs at least what it says; how much more depends on the machine.
    assert wait.microseconds[G].ratio > 3
    assert gc.isenabled()


def test_designs_must_do_the_same() -> None:
    operations: dict[Design, dict[str, Callable[[], object]]] = {W: {"bind": busy(1)}, G: {"build": busy(1)}}

    with pytest.raises(ValueError, match="operations differ"):
        _ = measure_running(operations, 1)


def test_every_design_has_the_same_operations_and_reads_the_same() -> None:
    found = subjects()

    assert list(found) == list(Design)
    for one, other in pairwise(found.values()):
        assert list(one.operations) == list(other.operations)
        assert one.read() == other.read() == 2
        assert set(one.bind) == {"full", "mla", "flashinfer", "mamba2", "gdn", "linear", "paged_tree"}


def test_binding_makes_a_group_of_the_named_back_end_and_building_makes_metadata() -> None:
    for design, subject in subjects().items():
        for name, bind in subject.bind.items():
            assert bind() is not bind(), (design, name)
        assert subject.build() is not None
