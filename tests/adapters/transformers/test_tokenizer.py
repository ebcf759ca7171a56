"""The wrapper of a real tokenizer, and the detokenizer on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from genericbuilders.engine.detokenizer import IncrementalDetokenizer
from genericbuilders.model import Tokenizer
from genericbuilders_transformers.default_model import ensure_default_model
from genericbuilders_transformers.tokenizer import HFTokenizer

TEXT = "Naïve café, 東京 2024 — «да»  😀👍🏽!\n\tx = [1, 2] . 's  "


@pytest.fixture(scope="module")
def folder() -> Path:
    return ensure_default_model()


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> HFTokenizer:
    return HFTokenizer(folder)


def deltas(tokenizer: Tokenizer, ids: list[int], stop: list[str]) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, stop)
    return [*(detokenizer.append(token) for token in ids), detokenizer.finish()]


def test_it_is_the_tokenizer_of_the_engine(tokenizer: HFTokenizer) -> None:
    used: Tokenizer = tokenizer
    assert used.decode(used.encode(TEXT)) == TEXT


def test_it_agrees_with_transformers(folder: Path, tokenizer: HFTokenizer) -> None:
    theirs = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = theirs.encode(TEXT)
    assert tokenizer.encode(TEXT) == ids
    assert tokenizer.decode([1, *ids, 2]) == theirs.decode([1, *ids, 2], skip_special_tokens=True) == TEXT
    assert tokenizer.eos_token_ids == {2}


def test_an_empty_text_has_no_tokens(tokenizer: HFTokenizer) -> None:
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""


def test_characters_over_several_tokens_come_whole(tokenizer: HFTokenizer) -> None:
    ids = tokenizer.encode("👍🏽東")
    assert len(ids) > 3
    assert [delta for delta in deltas(tokenizer, ids, []) if delta] == ["👍", "🏽", "東"]


def test_a_stop_text_over_several_tokens(tokenizer: HFTokenizer) -> None:
    ids = tokenizer.encode("one two\n\nUser: three")
    assert "".join(deltas(tokenizer, ids, ["\nUser:", "four"])) == "one two\n"


@given(text=st.text(max_size=40))
def test_the_deltas_are_the_text(tokenizer: HFTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert "".join(deltas(tokenizer, ids, [])) == tokenizer.decode(ids)


@given(ids=st.lists(st.integers(0, 49151), max_size=80))
def test_the_deltas_of_any_tokens_are_their_text(tokenizer: HFTokenizer, ids: list[int]) -> None:
    assert "".join(deltas(tokenizer, ids, [])) == tokenizer.decode(ids)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises((OSError, ValueError)):
        HFTokenizer(tmp_path)
