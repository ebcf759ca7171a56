from __future__ import annotations

from pathlib import Path

import pytest

from genericbuilders.checkers import Diagnostic, Run, Severity, Status
from typecheck.corpus import Case, Corpus, Design, Family, Fault, Raises, Variant
from typecheck.verdict import STYLE, Stray, judge

HERE = Path("/study")
CASE = HERE / "cases/kind/one/generic.py"
RIGHT = HERE / "variants/kind/right/generic.py"
PROGRAM = HERE / "designs/generic/program.py"


@pytest.fixture
def corpus() -> Corpus:
    case = Case(CASE, "erred", Raises("KeyError", ""), 8, frozenset({7, 8}))
    fault = Fault("kind", "one", True, "so", {Design.GENERIC: case}, {})
    variant = Variant("kind", "right", Design.GENERIC, RIGHT, "right")
    return Corpus(HERE, (Family("kind", "A kind", (fault,)),), (variant,), {Design.GENERIC: (PROGRAM,)})


def run(*places: tuple[Path, int, str], severity: Severity = Severity.ERROR, counts_warnings: bool = False) -> Run:
    diagnostics = tuple(Diagnostic(path, line, 1, severity, code, "no") for path, line, code in places)
    return Run("mypy", "strict", "1", Status.OK, None, diagnostics, counts_warnings=counts_warnings)


@pytest.mark.parametrize("line", [7, 8])
def test_an_error_on_a_marked_line_catches(corpus: Corpus, line: int) -> None:
    result = judge(corpus, run((CASE, line, "b"), (CASE, line, "a"), (CASE, line, "b")))

    finding = result.findings["kind/one"][Design.GENERIC]
    assert finding.caught
    assert finding.codes == ("a", "b")
    assert result.strays == ()


def test_an_error_elsewhere_does_not(corpus: Corpus) -> None:
    result = judge(corpus, run((CASE, 12, "b"), (CASE, 9, "a")))

    assert not result.findings["kind/one"][Design.GENERIC].caught
    assert result.strays == (Stray("cases/kind/one/generic.py:9", "a"), Stray("cases/kind/one/generic.py:12", "b"))
    assert result.alarms == ()


def test_an_error_in_what_is_right_is_a_false_alarm(corpus: Corpus) -> None:
    result = judge(corpus, run((RIGHT, 3, "a"), (PROGRAM, 2, "")))

    assert result.alarms == (
        Stray("designs/generic/program.py:2", "error"),
        Stray("variants/kind/right/generic.py:3", "a"),
    )


def test_style_does_not_catch(corpus: Corpus) -> None:
    result = judge(corpus, run(*((CASE, 8, code) for code in STYLE)))

    assert not result.findings["kind/one"][Design.GENERIC].caught


def test_warnings_count_where_the_level_says_so(corpus: Corpus) -> None:
    warned = run((CASE, 8, "a"), severity=Severity.WARNING)
    assert not judge(corpus, warned).findings["kind/one"][Design.GENERIC].caught

    warned = run((CASE, 8, "a"), severity=Severity.WARNING, counts_warnings=True)
    assert judge(corpus, warned).findings["kind/one"][Design.GENERIC].caught


def test_a_run_that_did_not_end_well_has_no_result(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="mypy-strict has no result: blocked: a syntax error"):
        _ = judge(corpus, Run("mypy", "strict", "1", Status.BLOCKED, "a syntax error"))
