"""causal-conv1d's functions as this library calls them: layouts, pages and the choice of a function, over functions that
compute with the oracle and check what the extension checks. The package's own run in tests/peer/test_fla_kernels.py."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.state import reference
from genericbuilders.kernels.state.causal_conv1d import CausalConv1dFunctions, CausalConv1dKernels
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.tolerance import compare
from tests.kernels.state.rows_strategy import make_rows, named_blocks, paged_states, state_rows

HALVES = (torch.float16, torch.bfloat16)
ROWS = state_rows()


@dataclass
class FakeConv1d:
    """Functions with causal-conv1d's layouts.

    Attributes:
        ran: the names of those that were called.
    """

    ran: list[str] = field(default_factory=list[str])

    @property
    def kernels(self) -> CausalConv1dKernels:
        functions = CausalConv1dFunctions(self._whole, self._update)
        return CausalConv1dKernels(lambda: functions)

    def _whole(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, activation: str | None) -> Tensor:
        self._checked("whole", x, weight, bias, activation)
        assert len(x) == 1
        assert x.stride(1) == 1
        assert x.stride(2) > 1
        assert x.shape[1] % 8 == x.stride(0) % 8 == x.stride(2) % 8 == 0
        states = x.new_zeros(1, weight.shape[1] - 1, x.shape[1])
        rows = make_rows([[x.shape[2]]], [0], [[0]])
        return reference.causal_conv(x[0].T, weight, bias, states, rows, silu=activation is not None).T[None]

    def _update(
        self, x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None
    ) -> Tensor:
        self._checked("update", x, weight, bias, activation)
        assert conv_state.dtype == x.dtype
        assert conv_state.shape == (*x.shape, weight.shape[1] - 1)
        own = list(range(1, len(x) + 1))
        states = F.pad(conv_state.mT, (0, 0, 0, 0, 1, 0))
        rows = make_rows([[1]] * len(x), own, [[block] for block in own])
        out = reference.causal_conv(x, weight, bias, states, rows, silu=activation is not None)
        conv_state.copy_(states[1:].mT)
        return out

    def _checked(self, name: str, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> None:
        self.ran.append(name)
        assert activation in (None, "silu")
        assert {x.dtype, weight.dtype} <= {torch.float32, *HALVES}
        assert 2 <= weight.shape[1] <= 4
        if bias is not None:
            assert (bias.dtype, bias.stride(-1)) == (weight.dtype, 1)


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def judge(
    fake: FakeConv1d,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    states: Tensor,
    rows: StateRows,
    *,
    silu: bool = True,
) -> None:
    """Compare outputs with the oracle; states are copies of inputs, and so equal. Nothing else may have changed."""
    before, working_states, exact_states = states.clone(), states.clone(), states.clone().double()
    result = fake.kernels.causal_conv(x, weight, bias, states, rows, silu=silu)
    assert (result.shape, result.dtype) == (x.shape, x.dtype)
    working = reference.causal_conv(x, weight, bias, working_states, rows, silu=silu)
    exact = reference.causal_conv(
        x.double(), weight.double(), None if bias is None else bias.double(), exact_states, rows, silu=silu
    )
    found = compare(result, working, exact)
    assert found.passed, str(found)
    assert torch.equal(states, working_states)
    others = [block for block in range(len(states)) if block not in named_blocks(rows)]
    assert torch.equal(states[others], before[others])


@settings(max_examples=60, deadline=None)
@given(
    drawn=ROWS,
    dim=st.sampled_from([8, 24]),
    width=st.integers(2, 4),
    silu=st.booleans(),
    has_bias=st.booleans(),
    padding=st.integers(0, 2),
)
def test_outputs_and_states(
    drawn: tuple[StateRows, int], dim: int, width: int, silu: bool, has_bias: bool, padding: int
) -> None:
    """Empty rows, rows of several chunks, states stored in mid-row, tokens of padding."""
    rows, num_blocks = drawn
    fake = FakeConv1d()
    x = random(rows.num_tokens + padding, dim + 5, seed=0)[:, :dim]
    bias = random(dim, 2, seed=2)[:, 0] if has_bias else None
    judge(fake, x, random(dim, width, seed=1), bias, paged_states(num_blocks, width - 1, dim), rows, silu=silu)
    wanted = ["update" if rows.single_tokens else "whole"]
    assert fake.ran == (wanted if rows.num_tokens else [])


@pytest.mark.parametrize("dtype", HALVES)
@settings(max_examples=15, deadline=None)
@given(drawn=ROWS)
def test_half_precision(dtype: torch.dtype, drawn: tuple[StateRows, int]) -> None:
    rows, num_blocks = drawn
    fake = FakeConv1d()
    x, weight = random(rows.num_tokens, 8, seed=0, dtype=dtype), random(8, 4, seed=1, dtype=dtype)
    states = random(num_blocks, 3, 8, seed=3, dtype=dtype)
    judge(fake, x, weight, random(8, seed=2, dtype=dtype), states, rows)
    assert bool(fake.ran) == bool(rows.num_tokens)


@settings(max_examples=15, deadline=None)
@given(drawn=ROWS, before=st.integers(0, 3), behind=st.integers(0, 3))
def test_tokens_of_no_row(drawn: tuple[StateRows, int], before: int, behind: int) -> None:
    rows, num_blocks = drawn
    apart = rows._replace(
        num_tokens=before + rows.num_tokens + behind,
        query_start_loc=rows.query_start_loc + before,
        chunk_start_loc=rows.chunk_start_loc + before,
    )
    x, weight = random(apart.num_tokens, 8, seed=0), random(8, 3, seed=1)
    judge(FakeConv1d(), x, weight, random(8, seed=2), random(num_blocks, 2, 8, seed=3), apart)


@pytest.mark.parametrize("lengths", [[], [[], []]], ids=["no row", "empty rows"])
def test_rows_without_tokens(lengths: list[list[int]]) -> None:
    rows = make_rows(lengths, [1] * len(lengths), [list[int]()] * len(lengths))._replace(num_tokens=2)
    fake, x, states = FakeConv1d(), random(3, 8, seed=0), random(3, 3, 8, seed=3)
    before = states.clone()
    found = fake.kernels.causal_conv(x, random(8, 4, seed=1), random(8, seed=2), states, rows)
    assert torch.equal(found, torch.zeros(3, 8))
    assert torch.equal(states, before)
    assert not fake.ran


@pytest.mark.parametrize("lengths", [[[3], [1]], [[1], [1]]])
def test_the_portable_kernel_runs_what_the_package_cannot(lengths: list[list[int]]) -> None:
    """Other widths, channels that are no multiple of 8, mixed dtypes, float64."""
    rows = make_rows(lengths, [1, 0], [[1], [2]])
    half, double = torch.float16, torch.float64
    for dim, width, x_dtype, weight_dtype, bias_dtype, state_dtype in (
        (8, 1, torch.float32, torch.float32, torch.float32, torch.float32),
        (8, 5, torch.float32, torch.float32, torch.float32, torch.float32),
        (12, 4, torch.float32, torch.float32, torch.float32, torch.float32),
        (8, 4, half, torch.float32, torch.float32, torch.float32),
        (8, 4, torch.float32, half, torch.float32, torch.float32),
        (8, 4, double, torch.float32, torch.float32, double),
        (8, 4, torch.float32, double, double, torch.float32),
    ):
        fake = FakeConv1d()
        x, weight = random(rows.num_tokens, dim, seed=0, dtype=x_dtype), random(dim, width, seed=1, dtype=weight_dtype)
        states = random(3, width - 1, dim, seed=3, dtype=state_dtype)
        fake.kernels.causal_conv(x, weight, random(dim, seed=2, dtype=bias_dtype), states, rows)
        assert not fake.ran


def test_without_the_package_the_portable_kernel_runs() -> None:
    kernels = CausalConv1dKernels(lambda: Unavailable("it cannot be imported"))
    x, weight, rows = random(3, 8, seed=0), random(8, 4, seed=1), make_rows([[3]], [1], [[2]])
    states, wanted_states = random(3, 3, 8, seed=3), random(3, 3, 8, seed=3)
    found = kernels.causal_conv(x, weight, None, states, rows)
    wanted = reference.causal_conv(x, weight, None, wanted_states, rows)
    assert torch.allclose(found, wanted, atol=1e-6)
    assert torch.equal(states, wanted_states)


def test_bad_input_is_refused() -> None:
    rows, states = make_rows([[2]], [7], [[1]]), random(3, 3, 8, seed=3)
    before = states.clone()
    with pytest.raises(ValueError, match=r"initial_state\[0\] is 7; there are the blocks 0 \(null\) to 2"):
        FakeConv1d().kernels.causal_conv(random(2, 8, seed=0), random(8, 4, seed=1), None, states, rows)
    with pytest.raises(ValueError, match="was the cache made for another layer"):
        FakeConv1d().kernels.causal_conv(random(2, 8, seed=0), random(8, 3, seed=1), None, states, rows)
    assert torch.equal(states, before)
