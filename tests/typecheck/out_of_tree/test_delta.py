"""Errors of two trees are paired before they are counted, and each has a kind of place."""

from __future__ import annotations

from pathlib import Path

import pytest

from typecheck.out_of_tree.checking import Finding
from typecheck.out_of_tree.delta import compare, tally
from typecheck.out_of_tree.places import Places

TEXT = """import x


class B(Base):
    kv_cache_spec: MambaSpec
    other: int = 1

    def __init__(self):
        self.a = 1

    @classmethod
    def get_cudagraph_support(cls):
        def inner():
            return 1
        return inner()

    def build(self):
        return 1


class Back:
    def get_builder_cls():
        return B


def run():
    return 1
"""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "m.py").write_text(TEXT, encoding="utf-8")
    return Places(tmp_path, {"p/m.py": frozenset({"B"})})


@pytest.mark.parametrize(
    ("line", "scope", "kind", "builder"),
    [
        (1, "<module>", "call site", False),
        (4, "B", "class line", True),
        (5, "B", "re-annotation", True),
        (6, "B", "class body", True),
        (9, "B.__init__", "constructor", True),
        (11, "B.get_cudagraph_support", "hook override", True),
        (14, "B.get_cudagraph_support.inner", "hook override", True),
        (18, "B.build", "method", True),
        (23, "Back.get_builder_cls", "get_builder_cls", False),
        (27, "run", "call site", False),
    ],
)
def test_kinds(places: Places, line: int, scope: str, kind: str, builder: bool) -> None:
    place = places.of("p/m.py", line)
    assert (place.scope, place.kind) == (scope, kind)
    assert place.builder == ("p/m.py:B" if builder else None)


def test_the_base_is_a_place_of_its_own(tmp_path: Path) -> None:
    path = "vllm/v1/attention/backend.py"
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(TEXT, encoding="utf-8")
    assert Places(tmp_path, {path: frozenset({"B"})}).of(path, 5).kind == "base"


def error(line: int, message: str, code: str = "override") -> Finding:
    return Finding("p/m.py", line, 1, code, message)


def test_what_is_the_same_is_no_change(places: Places) -> None:
    found = [error(9, "a"), error(9, "a"), error(18, "b")]
    delta = compare(found, list(reversed(found)), places, places)
    assert (delta.new, delta.gone, delta.reworded) == ((), (), 0)


def test_one_more_of_the_same_is_new(places: Places) -> None:
    delta = compare([error(9, "a")], [error(9, "a"), error(9, "a")], places, places)
    assert [change.finding for change in delta.new] == [error(9, "a")]
    assert delta.gone == ()


def test_a_line_that_moved_within_its_scope_is_no_change(places: Places) -> None:
    delta = compare([error(17, "a")], [error(18, "a")], places, places)
    assert (delta.new, delta.gone) == ((), ())


def test_another_scope_is_a_change(places: Places) -> None:
    delta = compare([error(9, "a")], [error(18, "a")], places, places)
    assert [(change.place.kind, change.package) for change in delta.new] == [("method", "p")]
    assert [change.place.kind for change in delta.gone] == ["constructor"]


def test_the_same_rule_on_the_same_line_in_other_words(places: Places) -> None:
    delta = compare([error(9, "B[int]")], [error(9, "B[int, S]"), error(9, "c", "arg-type")], places, places)
    assert delta.reworded == 1
    assert [change.finding.message for change in delta.new] == ["c"]


def test_revealed_types_are_no_errors(places: Places) -> None:
    revealed = Finding("p/m.py", 9, 1, "", "int", "reveal")
    delta = compare([], [revealed], places, places)
    assert delta.new == ()


def test_tally(places: Places) -> None:
    delta = compare([], [error(18, "a"), error(9, "a"), error(9, "b"), error(27, "a")], places, places)
    assert tally(delta.new) == {"p": {"constructor": 2, "method": 1, "call site": 1}}
