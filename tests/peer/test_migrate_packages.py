"""The codemod on copies of released packages, which are downloaded (make test-peer)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from genericbuilders.migration.result import Target
from typecheck.migration.measure import Measured, faults, measure, sources
from typecheck.migration.page import render

PAGE = Path(__file__).parents[2] / "docs" / "migration-results.md"
TIME = re.compile(r"takes .* cores")


@pytest.fixture(scope="module")
def results() -> list[Measured]:
    cache = user_cache_path("genericbuilders")

    def say(text: str) -> None:
        print(text, flush=True)

    return measure(sources(cache / "out-of-tree"), cache / "migration", say)


@pytest.mark.peer
@pytest.mark.parametrize("target", list(Target))
def test_nothing_is_broken(results: list[Measured], target: Target) -> None:
    (measured,) = [each for each in results if each.target is target]
    assert faults(measured) == []
    # The others have no builder of their own.
    assert {package.module for package in measured.packages if package.classes} == {"vllm", "vllm_rbln", "vllm_kunlun"}


@pytest.mark.peer
def test_the_page_says_what_was_measured(results: list[Measured]) -> None:
    measured = TIME.sub("takes", render(results, os.cpu_count() or 1))
    assert TIME.sub("takes", PAGE.read_text(encoding="utf-8")) == measured
