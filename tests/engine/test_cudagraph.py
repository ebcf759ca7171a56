from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genericbuilders.builder import AttentionCGSupport
from genericbuilders.engine.cudagraph import (
    CUDAGraphMode,
    UniformPadding,
    capture_sizes,
    choose_padded_size,
    is_uniform_decode,
    pad_indptr,
    resolve_cudagraph_mode,
)


def ints(values: torch.Tensor) -> list[int]:
    return [int(value) for value in values]


NEVER, SINGLE, UNIFORM, ALWAYS = AttentionCGSupport
NONE, PIECEWISE, DECODE, FULL, BOTH = CUDAGraphMode


@pytest.mark.parametrize(
    ("requested", "support", "uniform_query_len", "expected"),
    [
        (NONE, NEVER, 1, NONE),
        (PIECEWISE, NEVER, 1, PIECEWISE),
        (FULL, ALWAYS, 3, FULL),
        (FULL, UNIFORM, 3, BOTH),
        (FULL, SINGLE, 1, BOTH),
        (FULL, SINGLE, 3, PIECEWISE),
        (FULL, NEVER, 1, PIECEWISE),
        (BOTH, UNIFORM, 3, BOTH),
        (BOTH, SINGLE, 1, BOTH),
        (BOTH, SINGLE, 2, PIECEWISE),
        (BOTH, NEVER, 1, PIECEWISE),
        (DECODE, SINGLE, 1, DECODE),
        (DECODE, UNIFORM, 4, DECODE),
        (DECODE, SINGLE, 4, PIECEWISE),
        (DECODE, NEVER, 1, PIECEWISE),
    ],
)
def test_the_weakest_support_decides_and_is_named(
    requested: CUDAGraphMode, support: AttentionCGSupport, uniform_query_len: int, expected: CUDAGraphMode
) -> None:
    supports = [("flash", ALWAYS), ("weak", support), ("other", ALWAYS)]
    for order in permutations(supports):
        result = resolve_cudagraph_mode(requested, order, uniform_query_len=uniform_query_len)
        assert result.mode is expected
        if expected is requested:
            assert result.limiting_backend is None
        else:
            assert result.limiting_backend == "weak"
            for part in ("'weak'", support.name, requested.name, expected.name):
                assert part in result.reason


def test_one_full_graph_needs_always_even_for_single_tokens() -> None:
    reason = resolve_cudagraph_mode(FULL, [("a", SINGLE)], uniform_query_len=1).reason
    assert reason == (
        "FULL became FULL_AND_PIECEWISE: back end 'a' supports UNIFORM_SINGLE_TOKEN_DECODE, and FULL needs ALWAYS "
        "where a uniform decode has uniform_query_len 1"
    )


def test_equally_weak_back_ends_are_named_alike_in_any_order() -> None:
    for order in permutations([("b", NEVER), ("a", NEVER), ("c", UNIFORM)]):
        assert resolve_cudagraph_mode(FULL, order, uniform_query_len=1).limiting_backend == "a"


def test_a_model_without_groups_is_not_limited() -> None:
    assert resolve_cudagraph_mode(FULL, [], uniform_query_len=3).mode is FULL


@pytest.mark.parametrize(
    ("requested", "support", "expected", "limiting"),
    [
        (PIECEWISE, ALWAYS, NONE, None),
        (BOTH, ALWAYS, DECODE, None),
        (FULL, ALWAYS, FULL, None),
        (FULL, UNIFORM, DECODE, "a"),
        (FULL, NEVER, NONE, "a"),
        (DECODE, NEVER, NONE, "a"),
    ],
)
def test_without_piecewise_graphs(
    requested: CUDAGraphMode, support: AttentionCGSupport, expected: CUDAGraphMode, limiting: str | None
) -> None:
    result = resolve_cudagraph_mode(requested, [("a", support)], uniform_query_len=1, piecewise_available=False)
    assert (result.mode, result.limiting_backend) == (expected, limiting)


@pytest.mark.parametrize(("requested", "query_len"), list(product(CUDAGraphMode, (1, 3))))
def test_a_stronger_back_end_never_lowers_the_mode(requested: CUDAGraphMode, query_len: int) -> None:
    allowed = [NONE, PIECEWISE, FULL]
    previous = (0, 0)
    for support in AttentionCGSupport:
        mode = resolve_cudagraph_mode(requested, [("a", support)], uniform_query_len=query_len).mode
        current = (allowed.index(mode.decode_mode), allowed.index(mode.mixed_mode))
        if requested is not DECODE:  # it gives up piecewise graphs of mixed batches for full ones of decodes
            assert current >= previous
        previous = current
    assert previous == (allowed.index(requested.decode_mode), allowed.index(requested.mixed_mode))


def test_modes_by_batch() -> None:
    assert [(mode.decode_mode, mode.mixed_mode) for mode in CUDAGraphMode] == [
        (NONE, NONE),
        (PIECEWISE, PIECEWISE),
        (FULL, NONE),
        (FULL, FULL),
        (FULL, PIECEWISE),
    ]


def test_04_uniform_rows_of_three_tokens() -> None:
    sizes = capture_sizes([8, 16], 3, 64)
    assert sizes == (9, 18)
    assert choose_padded_size(12, sizes) == 18
    padding = UniformPadding.fit(4, 3, sizes)
    assert padding is not None
    assert padding == UniformPadding(4, 3, 18)
    assert (padding.num_tokens, padding.num_rows, padding.num_neutral_rows) == (12, 6, 2)
    assert ints(pad_indptr(torch.arange(0, 13, 3), padding.num_rows)) == [0, 3, 6, 9, 12, 12, 12]


def test_sizes_are_sorted_unique_and_within_the_limit() -> None:
    assert capture_sizes([16, 1, 2, 3, 8, 7], 3, 64) == (3, 9, 18)
    # 16 becomes 15, the largest multiple within 17; 32 is out of reach.
    assert capture_sizes([8, 16, 32], 3, 17) == (9, 15)
    assert capture_sizes([1, 2], 3, 2) == ()
    assert capture_sizes([4, 2, 2], 1, 4) == (2, 4)
    assert choose_padded_size(19, (9, 18)) is None
    assert choose_padded_size(9, (18, 9)) == 9


@given(st.sets(st.integers(1, 300), max_size=8), st.integers(1, 8), st.integers(1, 300))
def test_sizes_cover_what_was_asked_for(sizes: set[int], query_len: int, limit: int) -> None:
    captured = capture_sizes(sizes, query_len, limit)
    assert list(captured) == sorted(set(captured))
    assert all(size % query_len == 0 and 0 < size <= limit for size in captured)
    for num_reqs in range(1, limit // query_len + 1):
        tokens = num_reqs * query_len
        if choose_padded_size(tokens, [size for size in sizes if size <= limit]) is not None:
            padding = UniformPadding.fit(num_reqs, query_len, captured)
            assert padding is not None
            assert padding.num_rows * query_len == padding.num_padded_tokens >= tokens
            assert padding.num_rows == padding.num_reqs + padding.num_neutral_rows


def test_bad_sizes() -> None:
    with pytest.raises(ValueError, match=r"graph sizes are \[8, 0\]"):
        capture_sizes([8, 0], 3, 16)
    with pytest.raises(ValueError, match="uniform_query_len is 0"):
        capture_sizes([8], 0, 16)
    with pytest.raises(ValueError, match="max_num_tokens is 0"):
        capture_sizes([8], 1, 0)
    with pytest.raises(ValueError, match="a graph of 16 tokens has no whole rows of 3"):
        UniformPadding(4, 3, 16)
    with pytest.raises(ValueError, match="7 rows of 3 tokens do not fit a graph of 18 tokens"):
        UniformPadding(7, 3, 18)
    with pytest.raises(ValueError, match="num_reqs is -1"):
        UniformPadding(-1, 3, 18)
    with pytest.raises(ValueError, match="uniform_query_len is 0"):
        resolve_cudagraph_mode(FULL, [], uniform_query_len=0)
    assert UniformPadding.fit(7, 3, (9, 18)) is None
    assert UniformPadding.fit(4, 3, (16, 18)) == UniformPadding(4, 3, 18)


def test_07_added_rows_are_empty() -> None:
    indptr = torch.arange(343, dtype=torch.int32) * 5
    padded = pad_indptr(indptr, 352)
    assert padded.shape == (353,)
    assert padded.dtype == torch.int32
    assert torch.equal(padded[:343], indptr)
    assert ints(padded.diff()[-10:]) == [0] * 10
    assert ints(padded.diff()[:-10]) == [5] * 342


def test_padding_writes_into_the_persistent_buffer() -> None:
    buffer = torch.full((8,), -1, dtype=torch.int32)
    padded = pad_indptr(torch.tensor([0, 3, 7]), 4, out=buffer)
    assert padded.data_ptr() == buffer.data_ptr()
    assert ints(buffer) == [0, 3, 7, 7, 7, -1, -1, -1]
    # In place, and without anything to add.
    assert ints(pad_indptr(buffer[:3], 5, out=buffer)) == [0, 3, 7, 7, 7, 7]
    assert ints(pad_indptr(buffer[:3], 2, out=buffer)) == [0, 3, 7]
    assert ints(pad_indptr(torch.tensor([0]), 2)) == [0, 0, 0]


def test_bad_offsets() -> None:
    with pytest.raises(ValueError, match="indptr has 2 rows; it cannot be padded to 1"):
        pad_indptr(torch.tensor([0, 3, 7]), 1)
    with pytest.raises(ValueError, match=r"indptr has shape \[0\]"):
        pad_indptr(torch.tensor([]), 1)
    with pytest.raises(ValueError, match=r"out has shape \[4\]; it must hold at least 5 entries"):
        pad_indptr(torch.tensor([0, 3, 7]), 4, out=torch.zeros(4))


def counts(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


def test_06_a_prompt_as_long_as_a_decode_is_a_prefill() -> None:
    drafts = counts(2, 2)
    assert is_uniform_decode(counts(3, 3), counts(7, 9), 3, drafts)
    # A prompt of exactly 1 + 2 tokens, alone and beside a decode.
    assert not is_uniform_decode(counts(3), counts(0), 3, counts(0))
    assert not is_uniform_decode(counts(3, 3), counts(7, 0), 3, counts(2, 0))
    # A prompt's last piece of 3 tokens: something is computed, but nothing is a draft.
    assert not is_uniform_decode(counts(3, 3), counts(7, 16), 3, counts(2, 0))
    # Without drafts: a prompt of one token.
    assert is_uniform_decode(counts(1, 1), counts(7, 9), 1)
    assert not is_uniform_decode(counts(1, 1), counts(7, 0), 1)


def test_only_equal_rows_are_uniform() -> None:
    assert not is_uniform_decode(counts(3, 2), counts(7, 9), 3, counts(2, 1))
    assert not is_uniform_decode(counts(1, 2), counts(7, 9), 1)
    assert not is_uniform_decode(counts(3, 3), counts(7, 9), 3)
    assert not is_uniform_decode(counts(), counts(), 1)
    with pytest.raises(ValueError, match=r"have shapes \(2,\), \(1,\) and \(2,\)"):
        is_uniform_decode(counts(1, 1), counts(7), 1)
    with pytest.raises(ValueError, match="uniform_query_len is 0"):
        is_uniform_decode(counts(1), counts(7), 0)
