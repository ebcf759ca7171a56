"""Each checker's real output for one small file, and output that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from genericbuilders.checkers import CHECKERS, Checker, Request, Severity
from genericbuilders.checkers.checker import Output, OutputError

SAMPLES = Path(__file__).parent / "samples"
# What was checked:
#     def f(x: int | None) -> str:
#         return x + 1
#
#
#     reveal_type(f(None))
REQUEST = Request((Path("/project/a.py"),), Path("/project"))
ERROR, WARNING, INFORMATION = Severity.ERROR, Severity.WARNING, Severity.INFORMATION
RETURN_TYPE = (
    'Type "int | Unknown" is not assignable to return type "str"\n'
    '\xa0\xa0Type "int | Unknown" is not assignable to type "str"\n'
    '\xa0\xa0\xa0\xa0"int" is not assignable to "str"'
)
PYRIGHT = [
    (2, 12, ERROR, "reportOptionalOperand", 'Operator "+" not supported for "None"'),
    (2, 12, ERROR, "reportReturnType", RETURN_TYPE),
    (2, 12, ERROR, "reportUnknownVariableType", 'Return type, "int | Unknown", is partially unknown'),
    (5, 13, INFORMATION, "", 'Type of "f(None)" is "str"'),
]
EXPECTED = {
    "mypy": [
        (
            *(2, 12, ERROR, "operator"),
            'Unsupported operand types for + ("None" and "int")\nLeft operand is of type "int | None"',
        ),
        (2, 12, ERROR, "return-value", 'Incompatible return value type (got "int", expected "str")'),
        (5, 13, INFORMATION, "misc", 'Revealed type is "str"'),
    ],
    "pyright": PYRIGHT,
    "basedpyright": [*PYRIGHT[:2], (2, 12, WARNING, *PYRIGHT[2][3:]), PYRIGHT[3]],
    "pyrefly": [
        (
            *(2, 12, ERROR, "unsupported-operation"),
            "`+` is not supported between `None` and `Literal[1]`\n"
            "  Argument `None` is not assignable to parameter `value` with type `int` in function `int.__radd__`",
        ),
        (2, 12, ERROR, "bad-return", "Returned type `int` is not assignable to declared return type `str`"),
        (5, 1, ERROR, "unimported-directive", "`reveal_type` must be imported from `typing` for runtime usage"),
        (5, 12, INFORMATION, "reveal-type", "revealed type: str"),
    ],
    "ty": [
        (2, 12, ERROR, "unsound-return", "Unsound return statement: `Unknown` is not a subtype of `str`"),
        (
            *(2, 12, ERROR, "unsupported-operator"),
            "Operator `+` is not supported between objects of type `int | None` and `Literal[1]`",
        ),
        (5, 1, ERROR, "undefined-reveal", "`reveal_type` used without importing it"),
        (5, 13, INFORMATION, "revealed-type", "Revealed type: `str`"),
    ],
    "zuban": [
        (2, 12, ERROR, "operator", 'Unsupported operand types for + ("None" and "int")'),
        (2, 12, INFORMATION, "", 'Left operand is of type "int | None"'),
        (2, 12, ERROR, "return-value", 'Incompatible return value type (got "int", expected "str")'),
        (5, 13, INFORMATION, "", 'Revealed type is "builtins.str"'),
    ],
}


def named(name: str) -> Checker:
    return next(checker for checker in CHECKERS if checker.name == name)


def output(stdout: str, exit_code: int = 1) -> Output:
    return Output(stdout, "", exit_code)


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.name)
def test_real_output(checker: Checker) -> None:
    text = (SAMPLES / f"{checker.name}.txt").read_text(encoding="utf-8")
    found = checker.parse(output(text), REQUEST)
    assert [(each.line, each.column, each.severity, each.code, each.message) for each in found] == EXPECTED[
        checker.name
    ]
    assert {REQUEST.root / each.path for each in found} == {REQUEST.files[0]}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mypy", "Success", "line 1 of output is not JSON .*'Success'"),
        ("mypy", '{"file": "a.py", "line": 1}', "line 1 of output has no field 'message'"),
        (
            "mypy",
            '{"file": "a.py", "line": 1, "column": 0, "message": "m", "severity": "fatal"}',
            r"line 1 of output.severity is 'fatal', not one of error, warning, note",
        ),
        ("pyright", "[]", r"output is \[\], not an object"),
        (
            "pyright",
            '{"summary": {"filesAnalyzed": 0}, "generalDiagnostics": []}',
            "it says that it has checked 0 files, not 1",
        ),
        ("pyright", '{"summary": {"filesAnalyzed": true}}', "output.summary.filesAnalyzed is True, not an integer"),
        ("pyrefly", '{"errors": {}}', r"output.errors is \{\}, not a list"),
        ("pyrefly", '{"errors": [1]}', r"output.errors\[0\] is 1, not an object"),
        ("ty", "{}", r"output is \{\}, not a list"),
        ("ty", "", "output is not JSON"),
        ("zuban", "a.py:1:1: error: one  [misc]\nthe end\n", "line 2 of output is no report: 'the end'"),
        ("zuban", "a.py:1:1: fatal: one  [misc]\n", "line 1 of output is no report"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_where(name: str, text: str, message: str) -> None:
    with pytest.raises(OutputError, match=message):
        named(name).parse(output(text), REQUEST)


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("mypy", "mypy 2.4.1 (compiled: yes)\n", "2.4.1"),
        ("pyright", "pyright 1.1.414\n", "1.1.414"),
        ("basedpyright", "basedpyright 1.40.2\nbased on pyright 1.1.414\n", "1.40.2"),
        ("pyrefly", "pyrefly 1.5.0\n", "1.5.0"),
        ("ty", "ty 0.0.108\n", "0.0.108"),
        ("zuban", "", ""),
    ],
)
def test_versions(name: str, text: str, version: str) -> None:
    assert named(name).version_of(text) == version


def test_a_report_on_no_place_is_on_the_first_line() -> None:
    whole = {"mypy": '{"file": "a.py", "line": -1, "column": -1, "message": "m", "severity": "error"}'}
    whole["pyright"] = (
        '{"summary": {"filesAnalyzed": 1},'
        ' "generalDiagnostics": [{"file": "/project/a.py", "severity": "error", "message": "m"}]}'
    )
    for name, text in whole.items():
        (found,) = named(name).parse(output(text), REQUEST)
        assert (found.line, found.column) == (1, 1)


def test_paths_with_colons_and_messages_with_brackets() -> None:
    text = "a:1:b.py:3:4: error: X[int]  [no]  [misc]\n"
    (found,) = named("zuban").parse(output(text), REQUEST)
    assert (str(found.path), found.line, found.column) == ("a:1:b.py", 3, 4)
    assert (found.message, found.code) == ("X[int]  [no]", "misc")


def test_what_is_installed_has_the_packages_that_are_pinned() -> None:
    pins = (Path(__file__).parents[2] / "typecheck" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    for checker in CHECKERS:
        assert f"{checker.package}=={checker.tested}" in [pin.partition(";")[0] for pin in pins]
