"""Text comes as soon as it is certain, and is the whole text cut at the first stop text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genericbuilders.engine.detokenizer import IncrementalDetokenizer

SPECIAL = 0
"""A token that has no text."""


class PieceTokenizer:
    """Tokens that are strings of bytes: token ``n`` is ``pieces[n - 1]``, and token 0 has no text."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = (b"", *pieces)
        self.longest_decode = 0

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def decode(self, token_ids: Sequence[int]) -> str:
        self.longest_decode = max(self.longest_decode, len(token_ids))
        return b"".join(self.pieces[token] for token in token_ids).decode(errors="replace")


class LeadingSpaceTokenizer:
    """Like sentence pieces: each word brings its space, and the first space of a text is taken off."""

    words = (" Paris", " is", " a", " city")

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(self.words[token] for token in token_ids).removeprefix(" ")


BYTES = PieceTokenizer([bytes([value]) for value in range(256)])


def byte_tokens(data: bytes) -> list[int]:
    return [value + 1 for value in data]


def run(detokenizer: IncrementalDetokenizer, tokens: Sequence[int]) -> list[str]:
    """The text given out with each token, and at the end."""
    deltas: list[str] = []
    for token in tokens:
        deltas.append(detokenizer.append(token))
        if detokenizer.stopped:
            break
    return [*deltas, detokenizer.finish()]


def cut_at_first_stop(text: str, stop: Sequence[str]) -> str:
    """The text up to the stop text that is complete first; the longer one, if two are."""
    for end in range(len(text) + 1):
        starts = [end - len(each) for each in stop if text[:end].endswith(each)]
        if starts:
            return text[: min(starts)]
    return text


def test_a_character_is_held_until_its_last_byte() -> None:
    deltas = run(IncrementalDetokenizer(BYTES), byte_tokens("aé€😀z".encode()))
    assert deltas == ["a", "", "é", "", "", "€", "", "", "", "😀", "z", ""]


def test_an_unfinished_character_comes_out_at_the_end() -> None:
    assert run(IncrementalDetokenizer(BYTES), byte_tokens(b"a\xe2\x82")) == ["a", "", "", "\ufffd"]


def test_text_before_an_unfinished_character_is_not_held() -> None:
    tokenizer = PieceTokenizer([b"caf\xc3", b"\xa9 au"])
    assert run(IncrementalDetokenizer(tokenizer), [1, 2]) == ["caf", "é au", ""]


def test_spaces_between_words_are_kept() -> None:
    deltas = run(IncrementalDetokenizer(LeadingSpaceTokenizer()), [0, 1, 2, 3])
    assert deltas == ["Paris", " is", " a", " city", ""]


def test_a_stop_text_over_several_tokens_cuts_the_text() -> None:
    tokenizer = PieceTokenizer([b"one", b" E", b"N", b"D two"])
    detokenizer = IncrementalDetokenizer(tokenizer, ["END"])
    assert [detokenizer.append(token) for token in (1, 2, 3)] == ["one", " ", ""]
    assert detokenizer.append(4) == ""
    assert (detokenizer.stopped, detokenizer.stop_text) == (True, "END")
    assert detokenizer.append(1) == ""
    assert detokenizer.finish() == ""


def test_what_only_looked_like_a_stop_text_is_given_out() -> None:
    assert run(IncrementalDetokenizer(BYTES, ["abac"]), byte_tokens(b"ababac!"))[:5] == ["", "", "", "ab", ""]
    assert run(IncrementalDetokenizer(BYTES, ["abc"]), byte_tokens(b"ab")) == ["", "", "ab"]


@pytest.mark.parametrize("pieces", [[b"xabcd"], [b"x", b"ab", b"cd"], [b"xa", b"b", b"c", b"d"]])
def test_the_cut_does_not_depend_on_where_tokens_end(pieces: list[bytes]) -> None:
    tokens = range(1, len(pieces) + 1)
    for stop, expected in ((["abcd", "b"], "xa"), (["b", "ab"], "x"), (["d", "cd"], "xab")):
        assert "".join(run(IncrementalDetokenizer(PieceTokenizer(pieces), stop), tokens)) == expected


def test_a_stop_text_that_ends_in_what_is_flushed_is_met() -> None:
    detokenizer = IncrementalDetokenizer(BYTES, ["b\ufffd"])
    assert run(detokenizer, byte_tokens(b"ab\xe2")) == ["a", "", "", ""]
    assert detokenizer.stopped


def test_an_empty_stop_text_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        IncrementalDetokenizer(BYTES, ["a", ""])


@given(
    text=st.text(alphabet="ab é€😀\ufffd", max_size=30),
    stop=st.lists(st.text(alphabet="ab é€😀", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 120), max_size=40),
)
@settings(max_examples=300)
def test_the_deltas_are_the_text_cut_at_the_first_stop(text: str, stop: list[str], cuts: list[int]) -> None:
    data = text.encode()
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[start:end] for start, end in pairwise(ends)]
    detokenizer = IncrementalDetokenizer(PieceTokenizer(pieces), stop)
    assert "".join(run(detokenizer, range(1, len(pieces) + 1))) == cut_at_first_stop(text, stop)


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=3), min_size=1, max_size=4),
    choices=st.lists(st.integers(0, 4), max_size=150),
)
@settings(max_examples=300)
def test_bytes_of_no_character_and_tokens_without_text_are_decoded_as_all_at_once(
    pieces: list[bytes], choices: list[int]
) -> None:
    tokens = [min(choice, len(pieces)) for choice in choices]
    assert "".join(run(IncrementalDetokenizer(PieceTokenizer(pieces)), tokens)) == PieceTokenizer(pieces).decode(tokens)


@pytest.mark.parametrize(
    "tokens",
    [
        byte_tokens(b"plain text " * 400),
        byte_tokens(b"\xff" * 4000),
        byte_tokens(b"\xe2\x82" * 2000),
        byte_tokens("é".encode() * 2000),
        [SPECIAL] * 4000,
        byte_tokens(b"\xe2") + [SPECIAL] * 4000,
    ],
    ids=["text", "no-character", "unfinished", "two-bytes", "no-text", "unfinished-then-no-text"],
)
def test_a_decode_never_gets_long(tokens: list[int]) -> None:
    tokenizer = PieceTokenizer([bytes([value]) for value in range(256)])
    text = "".join(run(IncrementalDetokenizer(tokenizer), tokens))
    assert tokenizer.longest_decode < 100
    assert text == tokenizer.decode(tokens)


def test_a_decode_never_gets_long_where_every_token_ends_inside_a_character() -> None:
    tokenizer = PieceTokenizer([b"\xa9\xc3"])
    text = "".join(run(IncrementalDetokenizer(tokenizer), [1] * 2000))
    assert tokenizer.longest_decode < 100
    assert text == "\ufffd" + "é" * 1999 + "\ufffd"
