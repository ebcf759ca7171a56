"""Mamba's selective scan: the native and the portable form against float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.kernels.native import Unavailable, native_library
from genericbuilders.kernels.native.state_conv import NativeConvKernels
from genericbuilders.kernels.state import portable_selective, reference
from genericbuilders.kernels.state.protocols import SelectiveScan
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.tolerance import compare
from tests.kernels.state.rows_strategy import make_rows, named_blocks, paged_states, row_alone, state_rows

NAMES = pytest.mark.parametrize("name", ["native", "portable"])
DIMS = st.sampled_from([1, 7, 8, 16, 21, 64])
SIZES = st.sampled_from([1, 3, 8, 16, 17])
ROWS = state_rows()


def kernel_called(name: str) -> SelectiveScan:
    if name == "portable":
        return portable_selective.selective_scan
    library = native_library()
    if isinstance(library, Unavailable):
        pytest.skip(library.reason)
    return NativeConvKernels(library).selective_scan


@dataclass(frozen=True)
class Inputs:
    """The arguments of a scan before its states and rows."""

    x: Tensor
    dt: Tensor
    a: Tensor
    b: Tensor
    c: Tensor
    d: Tensor | None

    def run(self, kernel: SelectiveScan, states: Tensor, rows: StateRows) -> Tensor:
        return kernel(self.x, self.dt, self.a, self.b, self.c, self.d, states, rows)

    def double(self) -> Inputs:
        return self.each(lambda tensor: tensor.double(), lambda tensor: tensor.double())

    def tokens(self, chosen: slice) -> Inputs:
        return self.each(lambda tensor: tensor[chosen], lambda tensor: tensor)

    def each(self, tokens: Callable[[Tensor], Tensor], weights: Callable[[Tensor], Tensor]) -> Inputs:
        d = None if self.d is None else weights(self.d)
        return Inputs(tokens(self.x), tokens(self.dt), weights(self.a), tokens(self.b), tokens(self.c), d)


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def make_inputs(
    tokens: int, dim: int, size: int, *, seed: int = 0, has_d: bool = True, dtype: torch.dtype = torch.float32
) -> Inputs:
    """Inputs as a mixer has them: ``b`` and ``c`` lie in one projection's output."""
    projected = random(tokens, 2 * size + 3, seed=seed, dtype=dtype)
    return Inputs(
        x=random(tokens, dim + 2, seed=seed + 1, dtype=dtype)[:, :dim],
        dt=torch.nn.functional.softplus(random(tokens, dim, seed=seed + 2)).to(dtype),
        a=-torch.exp(random(dim, size, seed=seed + 3)),
        b=projected[:, 3 : 3 + size],
        c=projected[:, 3 + size :],
        d=random(dim, seed=seed + 4) if has_d else None,
    )


def judge(name: str, inputs: Inputs, states: Tensor, rows: StateRows) -> None:
    """Run a kernel and compare outputs and stored states with the oracle; nothing else may have changed."""
    before, working_states, exact_states = states.clone(), states.clone(), states.clone().double()
    result = inputs.run(kernel_called(name), states, rows)
    assert (result.shape, result.dtype) == (inputs.x.shape, inputs.x.dtype)
    working = inputs.run(reference.selective_scan, working_states, rows)
    exact = inputs.double().run(reference.selective_scan, exact_states, rows)
    named = named_blocks(rows)
    for found in (
        compare(result, working, exact),
        compare(states[named], working_states[named], exact_states[named]),
    ):
        assert found.passed, str(found)
    others = [block for block in range(len(states)) if block not in named]
    assert torch.equal(states[others], before[others])


@NAMES
@given(drawn=ROWS, dim=DIMS, size=SIZES, has_d=st.booleans(), seed=st.integers(0, 3))
def test_outputs_and_states(
    name: str, drawn: tuple[StateRows, int], dim: int, size: int, has_d: bool, seed: int
) -> None:
    rows, num_blocks = drawn
    inputs = make_inputs(rows.num_tokens, dim, size, seed=seed, has_d=has_d)
    judge(name, inputs, random(num_blocks, dim, size, seed=seed + 9), rows)


@NAMES
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@settings(max_examples=20)
@given(drawn=ROWS, dim=DIMS, size=SIZES)
def test_half_precision_activations(
    name: str, dtype: torch.dtype, drawn: tuple[StateRows, int], dim: int, size: int
) -> None:
    rows, num_blocks = drawn
    inputs = make_inputs(rows.num_tokens, dim, size, dtype=dtype)
    judge(name, inputs, random(num_blocks, dim, size, seed=9), rows)


@settings(max_examples=20)
@given(drawn=ROWS, dim=DIMS, size=SIZES, dtype=st.sampled_from([torch.bfloat16, torch.float64]))
def test_portable_states_of_other_dtypes(drawn: tuple[StateRows, int], dim: int, size: int, dtype: torch.dtype) -> None:
    rows, num_blocks = drawn
    inputs = make_inputs(rows.num_tokens, dim, size)
    inputs = inputs.double() if dtype == torch.float64 else inputs
    judge("portable", inputs, random(num_blocks, dim, size, seed=9, dtype=dtype), rows)


@NAMES
@settings(max_examples=20)
@given(drawn=ROWS, dim=DIMS, size=SIZES)
def test_states_in_pages(name: str, drawn: tuple[StateRows, int], dim: int, size: int) -> None:
    rows, num_blocks = drawn
    states = paged_states(num_blocks, dim, size)
    judge(name, make_inputs(rows.num_tokens, dim, size), states, rows)
    behind = torch.empty(0, dtype=torch.int8).set_(states.untyped_storage()).view(num_blocks, -1)[:, 4 * dim * size :]
    assert bool((behind == 77).all())


@NAMES
def test_long_rows(name: str) -> None:
    """More steps than one block of time has, with rows that end at different times and chunks across blocks."""
    rows = make_rows([[1], [90, 40], [200], [33, 1, 2], []], [0, 2, 0, 1, 3], [[4], [5, 2], [0], [6, 0, 7], []])
    judge(name, make_inputs(rows.num_tokens, 128, 16), random(9, 128, 16, seed=9), rows)


@NAMES
@settings(max_examples=20)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), continued=st.booleans())
def test_pieces_are_the_whole(name: str, lengths: list[int], continued: bool) -> None:
    """A row fed in pieces, each from the state that the last has left, is the row fed at once."""
    kernel, dim, size = kernel_called(name), 19, 5
    inputs = make_inputs(sum(lengths), dim, size)
    states = random(3, dim, size, seed=9)
    at_once, exact_states = states.clone(), states.clone().double()
    whole = make_rows([[sum(lengths)]], [2 if continued else 0], [[1]])
    working = inputs.run(kernel, at_once, whole)
    exact = inputs.double().run(reference.selective_scan, exact_states, whole)
    pieces: list[Tensor] = []
    first, start = whole.initial_state, 0
    for length in lengths:
        rows = make_rows([[length]], [int(first)], [[1]])
        pieces.append(inputs.tokens(slice(start, start + length)).run(kernel, states, rows))
        first, start = rows.chunk_state, start + length
    found = compare(torch.cat(pieces), working, exact)
    assert found.passed, str(found)
    found = compare(states[1], at_once[1], exact_states[1])
    assert found.passed, str(found)
    if name == "native":
        assert torch.equal(states, at_once), "to the bit: the recurrence has one order"
        assert torch.equal(torch.cat(pieces), working)


@NAMES
@settings(max_examples=20)
@given(drawn=ROWS)
def test_rows_do_not_see_each_other(name: str, drawn: tuple[StateRows, int]) -> None:
    """With NaN for all other rows' inputs a row's outputs and states stay the same, to the bit."""
    rows, num_blocks = drawn
    kernel, dim, size = kernel_called(name), 21, 6
    inputs, before = make_inputs(rows.num_tokens, dim, size), random(num_blocks, dim, size, seed=9)
    states = before.clone()
    together = inputs.run(kernel, states, rows)
    for row in range(rows.num_rows):
        alone, tokens = row_alone(rows, row)
        others = torch.ones(rows.num_tokens, 1, dtype=torch.bool)
        others[tokens] = False
        poisoned = inputs.each(partial(torch.masked_fill, mask=others, value=torch.nan), torch.clone)
        poisoned_states = before.clone()
        assert torch.equal(poisoned.run(kernel, poisoned_states, rows)[tokens], together[tokens])
        assert torch.equal(poisoned_states[named_blocks(alone)], states[named_blocks(alone)])


@settings(max_examples=20)
@given(drawn=ROWS)
def test_native_rows_are_the_same_alone(drawn: tuple[StateRows, int]) -> None:
    rows, num_blocks = drawn
    kernel, dim, size = kernel_called("native"), 21, 6
    inputs, states = make_inputs(rows.num_tokens, dim, size), random(num_blocks, dim, size, seed=9)
    alone_states = states.clone()
    together = inputs.run(kernel, states, rows)
    for row in range(rows.num_rows):
        alone, tokens = row_alone(rows, row)
        assert torch.equal(inputs.tokens(tokens).run(kernel, alone_states, alone), together[tokens])
    assert torch.equal(states, alone_states)


@NAMES
def test_nothing_leaks_from_the_null_block(name: str) -> None:
    states = torch.full((4, 5, 3), torch.nan)
    for rows in (make_rows([[1], [2], [4]], [0, 0, 0], [[0], [1], [2]]), make_rows([[1], [1]], [0, 0], [[3], [0]])):
        out = make_inputs(rows.num_tokens, 5, 3).run(kernel_called(name), states, rows)
        assert bool(out.isfinite().all())
        assert bool(states[named_blocks(rows)].isfinite().all())
        assert bool(states[0].isnan().all())


@NAMES
def test_a_later_chunk_of_a_row_wins_its_block(name: str) -> None:
    rows = make_rows([[2, 3, 1], [1, 1]], [1, 0], [[1, 1, 1], [2, 2]])
    judge(name, make_inputs(8, 9, 4), random(4, 9, 4, seed=2), rows)


@NAMES
def test_chunks_without_tokens_store_what_there_is(name: str) -> None:
    rows = make_rows([[0, 3, 0], [2], [0]], [1, 0, 2], [[4, 5, 6], [7], [3]])
    judge(name, make_inputs(5, 9, 4), random(8, 9, 4, seed=2), rows)


@NAMES
def test_padding_tokens_give_zeros(name: str) -> None:
    inputs = make_inputs(9, 6, 3)
    for rows in (
        make_rows([[1], [1]], [0, 0], [[1], [2]]),
        make_rows([[2], [3]], [0, 0], [[1], [2]]),
        make_rows([[]], [0], [[]]),
    ):
        out = inputs.run(kernel_called(name), random(4, 6, 3, seed=2), rows)
        assert out.shape == inputs.x.shape
        assert not out[rows.num_tokens :].any()
        padded = rows._replace(num_tokens=9)
        assert torch.equal(inputs.run(kernel_called(name), random(4, 6, 3, seed=2), padded), out)


def test_portable_decode_reads_nothing_back_from_a_device() -> None:
    """A meta tensor has no numbers to read: whatever runs on it can be captured in a graph."""
    rows = make_rows([[1], [1]], [0, 1], [[0], [1]], device="meta")
    inputs = make_inputs(3, 6, 3).each(lambda tensor: tensor.to("meta"), lambda tensor: tensor.to("meta"))
    out = inputs.run(portable_selective.selective_scan, torch.empty(4, 6, 3, device="meta"), rows)
    assert out.shape == inputs.x.shape


@NAMES
def test_no_rows(name: str) -> None:
    states = random(2, 6, 3, seed=2)
    before = states.clone()
    assert make_inputs(0, 6, 3).run(kernel_called(name), states, make_rows([], [], [])).shape == (0, 6)
    assert torch.equal(states, before)


def test_native_results_do_not_depend_on_threads() -> None:
    rows = make_rows([[150, 50], [1], [1], [70], []], [1, 0, 2, 0, 3], [[4, 1], [5], [2], [6], []])
    inputs = make_inputs(rows.num_tokens, 72, 16)
    found: list[tuple[Tensor, Tensor]] = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            states = random(8, 72, 16, seed=2)
            found.append((inputs.run(kernel_called("native"), states, rows), states))
    finally:
        torch.set_num_threads(threads)
    for out, states in found[1:]:
        assert torch.equal(out, found[0][0])
        assert torch.equal(states, found[0][1])


GOOD = make_rows([[2, 1], [1]], [1, 0], [[0, 2], [3]])
FITTING = make_inputs(4, 5, 3)


@NAMES
@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (make_rows([[2, 1], [1]], [1, 4], [[0, 2], [3]]), r"initial_state\[1\] is 4; there are the blocks 0 \(null\)"),
        (make_rows([[2, 1], [1]], [-1, 0], [[0, 2], [3]]), r"initial_state\[0\] is -1"),
        (make_rows([[2, 1], [1]], [1, 0], [[0, 2], [4]]), r"chunk_state\[2\] is 4"),
        (make_rows([[2, 3], [-1]], [1, 0], [[0, 2], [3]]), "chunk_start_loc falls from 5 to 4"),
        (make_rows([[1]] * 4, [0, 1, -2, 0], [[0]] * 4), r"initial_state\[2\] is -2"),
        (make_rows([[1]] * 4, [0, 1, 2, 0], [[0], [0], [0], [5]]), r"chunk_state\[3\] is 5"),
        (GOOD._replace(num_tokens=3), "chunk_start_loc runs from 0 to 4; it must stay within 0 to 3"),
    ],
)
def test_bad_rows_are_refused_before_anything_is_written(name: str, rows: StateRows, says: str) -> None:
    states = random(4, 5, 3, seed=2)
    before = states.clone()
    with pytest.raises(ValueError, match=says):
        FITTING.run(kernel_called(name), states, rows)
    assert torch.equal(states, before)


@NAMES
@pytest.mark.parametrize(
    ("inputs", "states", "error", "says"),
    [
        (replace(FITTING, x=torch.ones(5)), torch.ones(4, 5, 3), ValueError, "x has shape"),
        (replace(FITTING, x=torch.ones(4, 10)[:, ::2]), torch.ones(4, 5, 3), ValueError, "stride 2"),
        (replace(FITTING, dt=torch.ones(4, 6)), torch.ones(4, 5, 3), ValueError, r"dt is \(4, 6\)"),
        (replace(FITTING, a=torch.ones(6, 3)), torch.ones(4, 5, 3), ValueError, r"a is \(6, 3\)"),
        (replace(FITTING, b=torch.ones(4, 2)), torch.ones(4, 5, 3), ValueError, r"b is \(4, 2\)"),
        (replace(FITTING, c=torch.ones(3, 3)), torch.ones(4, 5, 3), ValueError, r"c is \(3, 3\)"),
        (replace(FITTING, d=torch.ones(4)), torch.ones(4, 5, 3), ValueError, r"d is \(4,\)"),
        (FITTING, torch.ones(4, 3, 5), ValueError, "another layer"),
        (FITTING, torch.ones(4, 15), ValueError, "ssm_state has shape"),
        (FITTING, torch.ones(0, 5, 3), ValueError, "num_blocks"),
        (FITTING, torch.ones(4, 5, 3, device="meta"), ValueError, "on meta"),
        (FITTING, torch.ones(4, 5, 3).int(), TypeError, "ssm_state.* is torch.int32"),
        (replace(FITTING, dt=torch.ones(4, 5).int()), torch.ones(4, 5, 3), TypeError, "dt.* is torch.int32"),
        (make_inputs(3, 5, 3), torch.ones(4, 5, 3), ValueError, "rows has 4 tokens and x 3"),
    ],
)
def test_bad_tensors_are_refused(name: str, inputs: Inputs, states: Tensor, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        inputs.run(kernel_called(name), states, GOOD)


@pytest.mark.parametrize(
    ("inputs", "states", "error", "says"),
    [
        (FITTING, torch.ones(4, 5, 3).bfloat16(), TypeError, "ssm_state's dtype is torch.bfloat16"),
        (FITTING, torch.ones(4, 5, 3).double(), TypeError, "ssm_state's dtype is torch.float64"),
        (replace(FITTING, b=FITTING.b.double()), torch.ones(4, 5, 3), TypeError, "b's dtype is torch.float64"),
        (replace(FITTING, a=torch.ones(3, 5).T), torch.ones(4, 5, 3), ValueError, "a's last axis has stride 5"),
    ],
)
def test_native_refuses(inputs: Inputs, states: Tensor, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        inputs.run(kernel_called("native"), states, GOOD)
