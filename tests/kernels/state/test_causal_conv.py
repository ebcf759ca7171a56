"""Causal convolution with state: the native and the portable form against float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.kernels.native import Unavailable, native_library
from genericbuilders.kernels.native.state_conv import NativeConvKernels
from genericbuilders.kernels.state import portable_conv, reference
from genericbuilders.kernels.state.protocols import CausalConv
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.tolerance import compare
from tests.kernels.state.rows_strategy import make_rows, named_blocks, paged_states, row_alone, state_rows

NAMES = pytest.mark.parametrize("name", ["native", "portable"])
DIMS = st.sampled_from([1, 7, 16, 130])
WIDTHS = st.integers(1, 8)
ROWS = state_rows()
SEEDS = st.integers(0, 3)


def kernel_called(name: str) -> CausalConv:
    if name == "portable":
        return portable_conv.causal_conv
    library = native_library()
    if isinstance(library, Unavailable):
        pytest.skip(library.reason)
    return NativeConvKernels(library).causal_conv


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def judge(
    name: str, x: Tensor, weight: Tensor, bias: Tensor | None, states: Tensor, rows: StateRows, *, silu: bool = True
) -> None:
    """Run a kernel and compare outputs and stored states with the oracle; nothing else may have changed."""
    before, working_states, exact_states = states.clone(), states.clone(), states.clone().double()
    result = kernel_called(name)(x, weight, bias, states, rows, silu=silu)
    assert (result.shape, result.dtype) == (x.shape, x.dtype)
    working = reference.causal_conv(x, weight, bias, working_states, rows, silu=silu)
    exact = reference.causal_conv(
        x.double(), weight.double(), None if bias is None else bias.double(), exact_states, rows, silu=silu
    )
    found = compare(result, working, exact)
    assert found.passed, str(found)
    # States are inputs, copied: they are exact.
    assert torch.equal(states, working_states)
    named = named_blocks(rows)
    others = [block for block in range(len(states)) if block not in named]
    assert torch.equal(states[others], before[others])


@NAMES
@given(drawn=ROWS, dim=DIMS, width=WIDTHS, silu=st.booleans(), has_bias=st.booleans(), seed=SEEDS)
def test_outputs_and_states(
    name: str, drawn: tuple[StateRows, int], dim: int, width: int, silu: bool, has_bias: bool, seed: int
) -> None:
    rows, num_blocks = drawn
    judge(
        name,
        random(rows.num_tokens, dim + 5, seed=seed)[:, :dim],
        random(dim, width, seed=seed + 1),
        random(dim, seed=seed + 2) if has_bias else None,
        random(num_blocks, width - 1, dim, seed=seed + 3),
        rows,
        silu=silu,
    )


@NAMES
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@settings(max_examples=20)
@given(drawn=ROWS, dim=DIMS, width=WIDTHS)
def test_half_precision_activations(
    name: str, dtype: torch.dtype, drawn: tuple[StateRows, int], dim: int, width: int
) -> None:
    rows, num_blocks = drawn
    x, weight = random(rows.num_tokens, dim, seed=0, dtype=dtype), random(dim, width, seed=1, dtype=dtype)
    judge(name, x, weight, random(dim, seed=2, dtype=dtype), random(num_blocks, width - 1, dim, seed=3), rows)


@settings(max_examples=20)
@given(drawn=ROWS, dim=DIMS, width=WIDTHS, dtype=st.sampled_from([torch.bfloat16, torch.float64]))
def test_portable_states_of_other_dtypes(
    drawn: tuple[StateRows, int], dim: int, width: int, dtype: torch.dtype
) -> None:
    rows, num_blocks = drawn
    x, weight = random(rows.num_tokens, dim, seed=0, dtype=dtype), random(dim, width, seed=1, dtype=dtype)
    judge("portable", x, weight, None, random(num_blocks, width - 1, dim, seed=3, dtype=dtype), rows)


@NAMES
@settings(max_examples=25)
@given(drawn=ROWS, dim=DIMS, width=WIDTHS)
def test_states_in_pages(name: str, drawn: tuple[StateRows, int], dim: int, width: int) -> None:
    rows, num_blocks = drawn
    states = paged_states(num_blocks, width - 1, dim)
    judge(name, random(rows.num_tokens, dim, seed=1), random(dim, width, seed=2), None, states, rows)
    size = (width - 1) * dim
    behind = torch.empty(0, dtype=torch.int8).set_(states.untyped_storage()).view(num_blocks, -1)[:, 4 * size :]
    assert bool((behind == 77).all())


@NAMES
@settings(max_examples=25)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), width=WIDTHS, continued=st.booleans())
def test_pieces_are_the_whole(name: str, lengths: list[int], width: int, continued: bool) -> None:
    """A row fed in pieces, each from the state that the last has left, is the row fed at once."""
    kernel, dim = kernel_called(name), 19
    x, weight, bias = random(sum(lengths), dim, seed=0), random(dim, width, seed=1), random(dim, seed=2)
    states = random(3, width - 1, dim, seed=3)
    at_once, exact_states = states.clone(), states.clone().double()
    whole = make_rows([[sum(lengths)]], [2 if continued else 0], [[1]])
    working = kernel(x, weight, bias, at_once, whole)
    exact = reference.causal_conv(x.double(), weight.double(), bias.double(), exact_states, whole)
    pieces: list[Tensor] = []
    first, start = whole.initial_state, 0
    for length in lengths:
        rows = make_rows([[length]], [int(first)], [[1]])
        pieces.append(kernel(x[start : start + length], weight, bias, states, rows))
        first, start = rows.chunk_state, start + length
    found = compare(torch.cat(pieces), working, exact)
    assert found.passed, str(found)
    assert torch.equal(states, at_once)


@NAMES
@settings(max_examples=25)
@given(drawn=ROWS, width=WIDTHS)
def test_rows_do_not_see_each_other(name: str, drawn: tuple[StateRows, int], width: int) -> None:
    """With NaN for all other rows' inputs a row's outputs and states stay the same, to the bit."""
    rows, num_blocks = drawn
    kernel, dim = kernel_called(name), 37
    x, weight = random(rows.num_tokens, dim, seed=0), random(dim, width, seed=1)
    before = random(num_blocks, width - 1, dim, seed=2)
    states = before.clone()
    together = kernel(x, weight, None, states, rows)
    for row in range(rows.num_rows):
        alone, tokens = row_alone(rows, row)
        poisoned, poisoned_states = torch.full_like(x, torch.nan), before.clone()
        poisoned[tokens] = x[tokens]
        assert torch.equal(kernel(poisoned, weight, None, poisoned_states, rows)[tokens], together[tokens])
        assert torch.equal(poisoned_states[named_blocks(alone)], states[named_blocks(alone)])


@settings(max_examples=25)
@given(drawn=ROWS, width=WIDTHS)
def test_native_rows_are_the_same_alone(drawn: tuple[StateRows, int], width: int) -> None:
    rows, num_blocks = drawn
    kernel, dim = kernel_called("native"), 37
    x, weight = random(rows.num_tokens, dim, seed=0), random(dim, width, seed=1)
    states = random(num_blocks, width - 1, dim, seed=2)
    alone_states = states.clone()
    together = kernel(x, weight, None, states, rows)
    for row in range(rows.num_rows):
        alone, tokens = row_alone(rows, row)
        assert torch.equal(kernel(x[tokens], weight, None, alone_states, alone), together[tokens])
    assert torch.equal(states, alone_states)


@NAMES
def test_nothing_leaks_from_the_null_block_or_a_neighbour(name: str) -> None:
    states = torch.full((3, 3, 5), torch.nan)
    x = random(7, 5, seed=0)
    x[3:] = torch.nan
    rows = make_rows([[1], [2], [4]], [0, 0, 0], [[0], [1], [2]])
    out = kernel_called(name)(x, random(5, 4, seed=1), None, states, rows)
    assert bool(out[:3].isfinite().all())
    assert bool(states[1].isfinite().all())
    assert bool(states[0].isnan().all())
    decode = make_rows([[1], [1]], [0, 0], [[1], [0]])
    assert bool(kernel_called(name)(x[:2], random(5, 4, seed=1), None, states, decode).isfinite().all())
    assert bool(states[0].isnan().all())


@NAMES
def test_a_later_chunk_of_a_row_wins_its_block(name: str) -> None:
    rows = make_rows([[2, 3, 1], [1, 1]], [1, 0], [[1, 1, 1], [2, 2]])
    judge(name, random(8, 9, seed=0), random(9, 4, seed=1), None, random(4, 3, 9, seed=2), rows)


def test_stores_name_a_block_once() -> None:
    """A device may write in any order."""
    rows = make_rows([[2, 3, 1], [1, 1], [1]], [1, 0, 3], [[1, 1, 4], [2, 2], [0]])
    assert torch.equal(portable_conv.last_stores(rows, 5), ints(0, 1, 4, 0, 2, 0).long())
    padded = rows._replace(chunk_state=ints(1, 1, 4, 2, 2, 0, 3), chunk_start_loc=ints(0, 2, 5, 6, 7, 8, 9, 9))
    assert torch.equal(portable_conv.last_stores(padded, 5), ints(0, 1, 4, 0, 2, 0, 0).long())


@NAMES
def test_chunks_that_no_row_has_are_ignored(name: str) -> None:
    rows = make_rows([[2], [1, 1]], [1, 0], [[1], [0, 2]])
    padded = rows._replace(chunk_state=ints(1, 0, 2, 3, 9), chunk_start_loc=ints(0, 2, 3, 4, 4, 0))
    x, weight, states = random(4, 9, seed=0), random(9, 4, seed=1), random(4, 3, 9, seed=2)
    expected = states.clone()
    out = kernel_called(name)(x, weight, None, expected, rows)
    assert torch.equal(kernel_called(name)(x, weight, None, states, padded), out)
    assert torch.equal(states, expected)


@NAMES
def test_chunks_without_tokens_store_what_there_is(name: str) -> None:
    rows = make_rows([[0, 3, 0], [2], [0]], [1, 0, 2], [[4, 5, 6], [7], [3]])
    judge(name, random(5, 9, seed=0), random(9, 4, seed=1), None, random(8, 3, 9, seed=2), rows)


@NAMES
def test_padding_tokens_give_zeros(name: str) -> None:
    weight, bias = random(6, 3, seed=1), torch.ones(6)
    for rows in (
        make_rows([[1], [1]], [0, 0], [[1], [2]]),
        make_rows([[2], [3]], [0, 0], [[1], [2]]),
        make_rows([[]], [0], [[]]),
    ):
        x = random(9, 6, seed=0)
        out = kernel_called(name)(x, weight, bias, random(4, 2, 6, seed=2), rows)
        assert out.shape == x.shape
        assert not out[rows.num_tokens :].any()
        # Padding that the rows' own count of tokens has in it.
        padded = rows._replace(num_tokens=9)
        assert torch.equal(kernel_called(name)(x, weight, bias, random(4, 2, 6, seed=2), padded), out)


@pytest.mark.parametrize("lengths", [[[1], [1]], [[2], [3]], [[4, 1], [1]]])
def test_portable_reads_nothing_back_from_a_device(lengths: list[list[int]]) -> None:
    """A meta tensor has no numbers to read: whatever runs on it can be captured in a graph."""
    rows = make_rows(lengths, [0, 1], [[1] * len(each) for each in lengths], device="meta")
    x, weight, states = (torch.empty(*shape, device="meta") for shape in ((9, 6), (6, 3), (4, 2, 6)))
    assert portable_conv.causal_conv(x, weight, None, states, rows).shape == x.shape


@NAMES
def test_no_rows(name: str) -> None:
    states = random(2, 2, 6, seed=2)
    before = states.clone()
    out = kernel_called(name)(torch.empty(0, 6), random(6, 3, seed=1), None, states, make_rows([], [], []))
    assert out.shape == (0, 6)
    assert torch.equal(states, before)


def test_native_results_do_not_depend_on_threads() -> None:
    kernel = kernel_called("native")
    rows = make_rows([[150, 50], [1], [1], [70], []], [1, 0, 2, 0, 3], [[4, 1], [5], [2], [6], []])
    x, weight = random(rows.num_tokens, 260, seed=0), random(260, 4, seed=1)
    found: list[tuple[Tensor, Tensor]] = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            states = random(8, 3, 260, seed=2)
            found.append((kernel(x, weight, None, states, rows), states))
    finally:
        torch.set_num_threads(threads)
    for out, states in found[1:]:
        assert torch.equal(out, found[0][0])
        assert torch.equal(states, found[0][1])


GOOD = make_rows([[2, 1], [1]], [1, 0], [[0, 2], [3]])


@NAMES
@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (GOOD._replace(initial_state=ints(1, 4)), r"initial_state\[1\] is 4; there are the blocks 0 \(null\) to 3"),
        (GOOD._replace(initial_state=ints(-1, 0)), r"initial_state\[0\] is -1"),
        (GOOD._replace(chunk_state=ints(0, 2, 7)), r"chunk_state\[2\] is 7"),
        (GOOD._replace(chunk_state=ints(0, -2, 3)), r"chunk_state\[1\] is -2"),
        (GOOD._replace(row_chunks=ints(0, 4, 3)), "row_chunks falls from 4 to 3"),
        (GOOD._replace(row_chunks=ints(0, 2, 4)), "row_chunks runs from 0 to 4; it must stay within 0 to 3"),
        (GOOD._replace(row_chunks=ints(-1, 2, 3)), "row_chunks runs from -1 to 3"),
        (GOOD._replace(chunk_start_loc=ints(0, 3, 2, 4)), "chunk_start_loc falls from 3 to 2 at 2"),
        (
            GOOD._replace(chunk_start_loc=ints(0, 2, 3, 5)),
            "chunk_start_loc runs from 0 to 5; it must stay within 0 to 4",
        ),
        (GOOD._replace(chunk_start_loc=ints(-1, 2, 3, 4)), "chunk_start_loc runs from -1 to 4"),
        (GOOD._replace(query_start_loc=ints(0, 2, 4)), r"query_start_loc\[1\] is 2 and chunk_start_loc\[2\].* 3"),
        (GOOD._replace(query_start_loc=ints(0, 3, 5)), r"query_start_loc\[2\] is 5"),
        (GOOD._replace(query_start_loc=ints(0, 4)), r"rows.query_start_loc is \(2,\)"),
        (GOOD._replace(chunk_start_loc=ints(0, 2, 4)), r"rows.chunk_start_loc is \(3,\)"),
        (GOOD._replace(row_chunks=ints(0, 2)), r"rows.row_chunks is \(2,\)"),
    ],
)
def test_bad_rows_are_refused_before_anything_is_written(name: str, rows: StateRows, says: str) -> None:
    states = random(4, 3, 5, seed=2)
    before = states.clone()
    with pytest.raises(ValueError, match=says):
        kernel_called(name)(random(4, 5, seed=0), random(5, 4, seed=1), None, states, rows)
    assert torch.equal(states, before)


@NAMES
@pytest.mark.parametrize(
    ("x", "weight", "bias", "states", "error", "says"),
    [
        (random(4, 5, 1, seed=0), torch.ones(5, 4), None, torch.ones(4, 3, 5), ValueError, "x has shape"),
        (torch.ones(4, 5), torch.ones(6, 4), None, torch.ones(4, 3, 5), ValueError, r"weight is \(6, 4\)"),
        (torch.ones(4, 5), torch.ones(5), None, torch.ones(4, 3, 5), ValueError, r"weight is \(5,\)"),
        (torch.ones(4, 5), torch.ones(5, 9), None, torch.ones(4, 8, 5), ValueError, "width of 1 to 8"),
        (torch.ones(4, 5), torch.ones(5, 4), torch.ones(4), torch.ones(4, 3, 5), ValueError, r"bias is \(4,\)"),
        (torch.ones(4, 5), torch.ones(5, 4), None, torch.ones(4, 5, 3), ValueError, "another layer"),
        (torch.ones(4, 5), torch.ones(5, 4), None, torch.ones(4, 3), ValueError, "conv_state has shape"),
        (torch.ones(4, 5), torch.ones(5, 4), None, torch.ones(0, 3, 5), ValueError, "num_blocks"),
        (torch.ones(3, 5), torch.ones(5, 4), None, torch.ones(4, 3, 5), ValueError, "rows has 4 tokens and x 3"),
        (torch.ones(4, 10)[:, ::2], torch.ones(5, 4), None, torch.ones(4, 3, 5), ValueError, "stride 2"),
        (torch.ones(4, 5).int(), torch.ones(5, 4), None, torch.ones(4, 3, 5), TypeError, "x.* is torch.int32"),
        (torch.ones(4, 5), torch.ones(5, 4), None, torch.ones(4, 3, 5).int(), TypeError, "conv_state.* is torch.int32"),
        (torch.ones(4, 5), torch.ones(5, 4), None, torch.ones(4, 3, 5, device="meta"), ValueError, "on meta"),
    ],
)
def test_bad_tensors_are_refused(
    name: str, x: Tensor, weight: Tensor, bias: Tensor | None, states: Tensor, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        kernel_called(name)(x, weight, bias, states, GOOD)


@pytest.mark.parametrize(
    ("x", "weight", "states", "says"),
    [
        (torch.ones(4, 5), torch.ones(5, 4), torch.ones(4, 3, 5).bfloat16(), "conv_state's dtype is torch.bfloat16"),
        (torch.ones(4, 5).double(), torch.ones(5, 4), torch.ones(4, 3, 5), "x's dtype is torch.float64"),
        (torch.ones(4, 5), torch.ones(5, 4).double(), torch.ones(4, 3, 5), "weight's dtype is torch.float64"),
    ],
)
def test_native_refuses_other_dtypes(x: Tensor, weight: Tensor, states: Tensor, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        kernel_called("native")(x, weight, None, states, GOOD)


def test_native_refuses_a_strided_weight() -> None:
    with pytest.raises(ValueError, match="weight's last axis has stride 5"):
        kernel_called("native")(torch.ones(4, 5), torch.ones(4, 5).T, None, torch.ones(4, 3, 5), GOOD)


@NAMES
def test_indices_must_be_int32(name: str) -> None:
    rows = GOOD._replace(chunk_state=GOOD.chunk_state.long())
    with pytest.raises(TypeError, match=r"rows.chunk_state is torch.int64"):
        kernel_called(name)(torch.ones(4, 5), torch.ones(5, 4), None, torch.ones(4, 3, 5), rows)
