from __future__ import annotations

from pathlib import Path

import pytest

from typecheck.corpus import Design
from typecheck.explain import ExplanationError, check_explanations, differing, read_causes
from typecheck.verdict import Finding, Result

CAUSE = '[[cause]]\ntitle = "t"\nonly = "{}"\nwhy = "because"\nsources = ["https://example.org"]\ncases = {}\n'


def result(checker: str, caught: bool) -> Result:
    finding = Finding(("a",)) if caught else Finding()
    return Result(checker, "strict", "1", {"kind/one": {Design.GENERIC: finding}}, (), ())


def explained(tmp_path: Path, only: str, cases: list[str]) -> Path:
    path = tmp_path / "differences.toml"
    path.write_text(CAUSE.format(only, cases), encoding="utf-8")
    return path


def test_who_reports_it() -> None:
    assert differing([result("mypy", True), result("pyright", False)]) == {"kind/one/generic": "mypy"}
    assert differing([result("mypy", False), result("pyright", True)]) == {"kind/one/generic": "pyright"}
    assert differing([result("mypy", True), result("pyright", True)]) == {}


def test_what_is_explained_is_accepted(tmp_path: Path) -> None:
    path = explained(tmp_path, "mypy", ["kind/one/generic"])

    assert check_explanations(path, [result("mypy", True), result("pyright", False)]) == []


@pytest.mark.parametrize(
    ("only", "cases", "mypy", "line"),
    [
        ("mypy", ["kind/two/generic"], True, "kind/one/generic: only mypy reports it, and no cause explains that"),
        ("pyright", ["kind/one/generic"], True, "says that only pyright reports it; it is mypy"),
        ("mypy", ["kind/one/generic"], False, "says that only mypy reports it; it is both or neither"),
        ("mypy", ["kind/one/generic"] * 2, True, "kind/one/generic is explained twice"),
    ],
)
def test_what_is_not_so_is_told(tmp_path: Path, only: str, cases: list[str], mypy: bool, line: str) -> None:
    path = explained(tmp_path, only, cases)

    lines = check_explanations(path, [result("mypy", mypy), result("pyright", False)])
    assert any(line in each for each in lines)


@pytest.mark.parametrize("text", ["[[cause]]\n", CAUSE.format("ty", ["a"]), CAUSE.format("mypy", "[]"), "cause ="])
def test_what_is_malformed_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "differences.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ExplanationError, match=r"differences\.toml"):
        _ = read_causes(path)
