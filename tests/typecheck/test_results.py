from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from typecheck.corpus import Design
from typecheck.results import ResultsError, differences, read_result, read_results, unknown_files, write_result
from typecheck.verdict import Finding, Result, Stray

HEAD = 'checker = "mypy"\nlevel = "strict"\nversion = "1"\n'
RESULT = Result(
    "mypy",
    "strict",
    "2.4.1",
    {
        "kind/one": {Design.WIDENED: Finding(), Design.GENERIC: Finding(("arg-type", "misc"))},
        "kind/two": {Design.GENERIC: Finding(("attr-defined",))},
    },
    (Stray("cases/kind/one/generic.py:9", "a"), Stray("cases/kind/one/generic.py:9", "b")),
    (Stray("variants/kind/right/generic.py:3", "a"),),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = write_result(tmp_path / "new", RESULT)

    assert path.name == "mypy-strict.toml"
    assert read_result(path) == RESULT
    assert read_results(path.parent, ["mypy-strict"]) == [RESULT]
    assert [each.name for each in path.parent.iterdir()] == ["mypy-strict.toml"]


def test_one_fault_is_one_line(tmp_path: Path) -> None:
    lines = write_result(tmp_path, RESULT).read_text(encoding="utf-8").splitlines()

    assert '"kind/one" = { widened = "missed", generic = "caught: arg-type, misc" }' in lines


def test_equal_results_do_not_differ() -> None:
    assert differences(RESULT, RESULT) == []


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (("a",), (), "kind/two (generic): caught: a -> missed"),
        ((), ("a",), "kind/two (generic): missed -> caught: a"),
        (("a",), ("b",), "kind/two (generic): caught: a -> caught: b"),
    ],
)
def test_a_verdict_differs_in_either_direction(old: tuple[str, ...], new: tuple[str, ...], line: str) -> None:
    before, after = (
        replace(RESULT, findings={**RESULT.findings, "kind/two": {Design.GENERIC: Finding(codes)}})
        for codes in (old, new)
    )

    assert differences(before, after) == [f"mypy-strict: {line}"]


def test_versions_strays_alarms_and_cases_differ() -> None:
    other = replace(
        RESULT,
        version="2.5",
        strays=(),
        alarms=(Stray("variants/kind/right/generic.py:4", "a"),),
        findings={"kind/one": RESULT.findings["kind/one"]},
    )

    assert differences(RESULT, other) == [
        "mypy-strict: false alarm at variants/kind/right/generic.py:3: a -> nothing",
        "mypy-strict: false alarm at variants/kind/right/generic.py:4: nothing -> a",
        "mypy-strict: kind/two (generic): caught: attr-defined -> nothing",
        "mypy-strict: stray at cases/kind/one/generic.py:9: a, b -> nothing",
        "mypy-strict: version: 2.4.1 -> 2.5",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("checker =", "Invalid"),
        ('level = "strict"', "checker must be a text"),
        (HEAD + '[faults]\n"kind/one" = { generic = "seen" }', "'seen' is neither"),
        (HEAD + '[faults]\n"kind/one" = { other = "missed" }', "other"),
        (HEAD + '[faults]\n"kind/one" = { generic = 1 }', "must be a text"),
        (HEAD.replace("strict", "default"), "it says that it is of mypy-default"),
        (HEAD + "stray = 1\n", "stray is no key of a result"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mypy-strict.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(ResultsError, match=f"mypy-strict.toml: .*{message}.*typecheck run"):
        _ = read_result(path)


def test_what_is_missing_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"ty-all.toml: .*typecheck run"):
        _ = read_results(tmp_path, ["ty-all"])


def test_files_that_nobody_reads(tmp_path: Path) -> None:
    for name in ("mypy-strict.toml", "ty-foo.toml", "costs.json"):
        (tmp_path / name).touch()
    assert unknown_files(tmp_path, ["mypy-strict"]) == ["ty-foo.toml: there is no such checker and level"]
