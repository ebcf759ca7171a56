"""The selection of keys: every implementation against the reference, where sums are exact and where they are not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from attention_batches import int_rows, ints
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.kernels.sparse import portable, reference
from genericbuilders.kernels.sparse.protocols import SelectTopk
from tests.kernels.paged_batches import DTYPES
from tests.kernels.sparse.index_cases import Case, make_case

KERNELS: list[SelectTopk] = [reference.select_topk, portable.select_topk]
ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=4)


def by_definition(case: Case) -> list[list[int]]:
    """The best positions by a sort of pairs: of equal scores the earlier first."""
    found = [[-1] * case.topk for _ in range(len(case.query))]
    for token, keys in case.seen():
        scores = [
            sum(
                float(case.weights[token, head]) * max(0.0, case.scale * float(case.query[token, head] @ key))
                for head in range(case.query.shape[1])
            )
            for key in keys
        ]
        best = sorted(sorted(range(len(scores)), key=lambda place: (-scores[place], place))[: case.topk])
        found[token][: len(best)] = best
    return found


@pytest.mark.parametrize("kernel", KERNELS)
@given(
    rows=ROWS,
    topk=st.integers(1, 20),
    block_size=st.sampled_from([1, 4, 7]),
    padding=st.integers(0, 3),
    bounds=st.booleans(),
    seed=st.integers(0, 99),
)
def test_where_sums_are_exact_so_is_the_selection(
    kernel: SelectTopk, rows: list[tuple[int, int]], topk: int, block_size: int, padding: int, bounds: bool, seed: int
) -> None:
    """Small integers: many scores are equal, of which the earlier are taken."""
    case = make_case(rows, topk, block_size=block_size, whole=True, padding=padding, seed=seed)
    assert int_rows(case.run(kernel, bounds=bounds)) == by_definition(case)


@pytest.mark.parametrize("dtype", DTYPES)
@given(rows=ROWS, topk=st.integers(1, 12), seed=st.integers(0, 99))
def test_elsewhere_nothing_better_is_left_out(
    dtype: torch.dtype, rows: list[tuple[int, int]], topk: int, seed: int
) -> None:
    """What is left out scores, in float64, no more than what is taken, but for the reference's own error."""
    case = make_case(rows, topk, heads=5, size=16, dtype=dtype, seed=seed)
    selected, wide = case.run(portable.select_topk), case.wide()
    for (token, keys), (_, exact_keys) in zip(case.seen(), wide.seen(), strict=True):
        working = reference.index_scores(case.query[token], case.weights[token], keys, case.scale)
        exact = reference.index_scores(wide.query[token], wide.weights[token], exact_keys, case.scale)
        allowed = 4 * float((working - exact).abs().max()) + 4 * torch.finfo(torch.float32).eps * float(
            exact.abs().max()
        )
        taken = [place for place in ints(selected[token]) if place >= 0]
        assert taken == sorted(set(taken))
        assert len(taken) == min(topk, len(keys))
        left = [place for place in range(len(keys)) if place not in taken]
        if left:
            assert float(exact[left].max()) <= float(exact[taken].min()) + 2 * allowed


@pytest.mark.parametrize("elements", [1, 300])
@pytest.mark.parametrize("rows", [[(1, 30), (1, 3), (1, 17), (1, 0)], [(5, 20), (2, 0), (0, 0), (9, 4)]])
def test_it_is_the_same_in_small_chunks(
    monkeypatch: pytest.MonkeyPatch, elements: int, rows: list[tuple[int, int]]
) -> None:
    case = make_case(rows, 4, whole=True)
    monkeypatch.setattr(portable, "CHUNK_ELEMENTS", elements)
    monkeypatch.setattr(portable, "PRODUCTS", elements)
    assert int_rows(case.run(portable.select_topk)) == by_definition(case)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bounds", [True, False])
def test_case_20_sequences_of_no_length_select_nothing(kernel: SelectTopk, bounds: bool) -> None:
    """As when a graph is captured: rows have tokens, but all lengths are 0 and blocks are anyone's."""
    case = make_case([(1, 3), (1, 5), (1, 0)], 2)
    zero = replace(case.common, seq_lens=torch.zeros(3, dtype=torch.int32), max_seq_len=0)
    table = torch.full_like(zero.block_table_tensor, 10**6)
    empty = replace(case, common=replace(zero, block_table_tensor=table))
    assert int_rows(empty.run(kernel, bounds=bounds)) == [[-1, -1]] * 3
    # The same told that sequences may be long.
    long = replace(empty, common=replace(empty.common, max_seq_len=64))
    assert int_rows(long.run(kernel, bounds=bounds)) == [[-1, -1]] * 3


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rows", [[], [(0, 0)], [(0, 9), (0, 2)]])
def test_case_20_a_chunk_without_query_tokens_is_empty(kernel: SelectTopk, rows: list[tuple[int, int]]) -> None:
    for bounds in (True, False):
        assert make_case(rows, 3).run(kernel, bounds=bounds).shape == (0, 3)
        assert int_rows(make_case(rows, 3, padding=2).run(kernel, bounds=bounds)) == [[-1] * 3] * 2


@pytest.mark.parametrize("kernel", KERNELS)
def test_nan_counts_as_the_highest_and_zero_has_no_sign(kernel: SelectTopk) -> None:
    case = make_case([(1, 5)], 2, heads=1, size=1, block_size=8)
    keys = torch.tensor([1.0, 7.0, math.nan, 3.0, math.inf, -math.inf])
    case.cache[1, :6, 0] = keys
    case = replace(case, query=torch.ones(1, 1, 1), weights=torch.ones(1, 1))
    assert int_rows(case.run(kernel)) == [[2, 4]]
    # Every score is zero, some of them below it.
    case.cache[1, :6, 0] = torch.tensor([-1.0, -1.0, 0.0, -0.0, -2.0, 0.0])
    assert int_rows(replace(case, weights=-torch.ones(1, 1), topk=3).run(kernel)) == [[0, 1, 2]]
    # Less than nothing is still seen; what is not seen never is selected.
    case.cache[1, :6, 0] = torch.tensor([math.inf] * 6)
    assert int_rows(replace(case, weights=-torch.ones(1, 1), topk=3).run(kernel)) == [[0, 1, 2]]


def test_scores_of_zero_are_equal_whatever_their_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a sum of nothing comes out as -0.0 is up to the device."""
    case = make_case([(1, 3)], 2)
    scores = torch.tensor([[[-0.0, 0.0, -0.0, 0.0]]])

    def equal(*_: object) -> Tensor:
        return scores

    monkeypatch.setattr(portable, "_scores", equal)
    assert ints(case.run(portable.select_topk)[0]) == [0, 1]


@pytest.mark.parametrize("kernel", KERNELS)
def test_bad_input_is_refused(kernel: SelectTopk) -> None:
    case = make_case([(2, 6)], 3)
    with pytest.raises(ValueError, match="topk is 0; at least 1 token is selected"):
        replace(case, topk=0).run(kernel)
    with pytest.raises(ValueError, match="query has head_size 5 and key_cache 4: was the cache made for another layer"):
        replace(case, query=torch.zeros(2, 3, 5)).run(kernel)
    with pytest.raises(TypeError, match=r"query is torch.float64 and key_cache torch.float32"):
        replace(case, query=case.query.double()).run(kernel)
    with pytest.raises(ValueError, match=r"weights is torch.float32 \(2, 2\); it must be torch.float32 \(2, 3\)"):
        replace(case, weights=torch.zeros(2, 2)).run(kernel)
    with pytest.raises(ValueError, match=r"weights is torch.bfloat16 \(2, 3\)"):
        replace(case, weights=case.weights.bfloat16()).run(kernel)
    narrow = replace(case.common, block_table_tensor=case.common.block_table_tensor[:, :1])
    with pytest.raises(
        ValueError, match="block_table has 1 columns, and a sequence of 8 tokens in blocks of 4 needs 2"
    ):
        replace(case, common=narrow).run(kernel)
    short = replace(case.common, seq_lens=torch.tensor([1], dtype=torch.int32))
    with pytest.raises(ValueError, match="row 0 has 2 new tokens but a length of 1 tokens"):
        replace(case, common=short).run(kernel)
    outside = replace(case.common, query_start_loc=torch.tensor([0, 3], dtype=torch.int32), max_query_len=3)
    with pytest.raises(ValueError, match="query_start_loc says that row 0 is tokens 0 to 3, of 2 tokens"):
        replace(case, common=outside).run(kernel)
