"""Every case does at run time what its docstring says, and every variant runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from typecheck.corpus import Case, Corpus, Raises, Returns, Variant, read_corpus
from typecheck.study import FOLDER

CORPUS = read_corpus(FOLDER)
CASES = [case for fault in CORPUS.faults for case in fault.cases.values()]


def name(value: Case | Variant) -> str:
    return CORPUS.short(value.path)


def runner(corpus: Corpus, path: Path) -> Callable[[], object]:
    run: Callable[[], object] = importlib.import_module(
        ".".join(("typecheck", *path.relative_to(corpus.folder).with_suffix("").parts))
    ).run
    return run


@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_mistake_shows_as_it_says(case: Case) -> None:
    run = runner(CORPUS, case.path)
    match case.outcome:
        case Raises(error, text):
            with pytest.raises(Exception) as caught:
                _ = run()
            assert type(caught.value).__name__ == error
            assert text in " ".join(str(caught.value).split())
        case Returns(wrong, right):
            assert repr(run()) == wrong
            assert wrong != right
        case _:
            _ = run()


@pytest.mark.parametrize("variant", CORPUS.variants, ids=name)
def test_what_is_right_runs(variant: Variant) -> None:
    _ = runner(CORPUS, variant.path)()


def test_there_are_enough_of_them() -> None:
    assert len(CORPUS.faults) >= 60
    assert len({variant.key for variant in CORPUS.variants}) >= 20
