"""mamba-ssm's update as this library calls it, over a function that computes with the oracle. The real one runs in
tests/peer/test_fla_kernels.py."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.state import reference
from genericbuilders.kernels.state.mamba_ssm import MambaSsmKernels
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.tolerance import compare
from tests.kernels.state.rows_strategy import make_rows, named_blocks, paged_states, state_rows

ROWS = state_rows()


@dataclass
class FakeUpdate:
    """A function with the layout of ``selective_state_update``.

    Attributes:
        calls: how often it ran.
    """

    calls: int = 0

    def __call__(
        self,
        state: Tensor,
        x: Tensor,
        dt: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        *,
        D: Tensor,
        dt_bias: Tensor,
        dt_softplus: bool,
    ) -> Tensor:
        self.calls += 1
        assert not dt_softplus
        assert state.shape == (*x.shape, A.shape[1])
        assert dt.shape == x.shape
        assert B.shape == C.shape == (len(x), A.shape[1])
        assert D.shape == dt_bias.shape == x.shape[1:]
        # Such a matrix the kernel takes for one number.
        assert A.stride() != (0, 0)
        assert state.dtype == torch.float32
        own = list(range(1, len(x) + 1))
        rows = make_rows([[1]] * len(x), own, [[block] for block in own])
        states = F.pad(state, (0, 0, 0, 0, 1, 0))
        out = reference.selective_scan(x, dt + dt_bias.to(dt.dtype), A, B, C, D, states, rows)
        state.copy_(states[1:])
        return out


@dataclass(frozen=True)
class Inputs:
    """The arguments of a scan before its states and rows."""

    x: Tensor
    dt: Tensor
    a: Tensor
    b: Tensor
    c: Tensor
    d: Tensor | None

    @classmethod
    def random(cls, tokens: int, dim: int, size: int, *, has_d: bool, dtype: torch.dtype = torch.float32) -> Inputs:
        numbers = torch.Generator().manual_seed(0)
        projected = torch.randn(tokens, 2 * size + 3, generator=numbers).to(dtype)
        return cls(
            x=torch.randn(tokens, dim + 2, generator=numbers).to(dtype)[:, :dim],
            dt=F.softplus(torch.randn(tokens, dim, generator=numbers)).to(dtype),
            a=(-torch.rand(1, 1, generator=numbers)).expand(dim, size),
            b=projected[:, 3 : 3 + size],
            c=projected[:, 3 + size :],
            d=torch.randn(dim, generator=numbers) if has_d else None,
        )

    def double(self) -> Inputs:
        d = None if self.d is None else self.d.double()
        return Inputs(self.x.double(), self.dt.double(), self.a.double(), self.b.double(), self.c.double(), d)


def judge(kernels: MambaSsmKernels, inputs: Inputs, states: Tensor, rows: StateRows) -> None:
    """Compare outputs and stored states with the oracle; nothing else may have changed."""
    before, working_states, exact_states = states.clone(), states.clone().float(), states.clone().double()
    i, e = inputs, inputs.double()
    result = kernels.selective_scan(i.x, i.dt, i.a, i.b, i.c, i.d, states, rows)
    assert (result.shape, result.dtype) == (i.x.shape, i.x.dtype)
    working = reference.selective_scan(i.x, i.dt, i.a, i.b, i.c, i.d, working_states, rows)
    exact = reference.selective_scan(e.x, e.dt, e.a, e.b, e.c, e.d, exact_states, rows)
    named = named_blocks(rows)
    for found in (
        compare(result, working, exact),
        compare(states[named], working_states[named].to(states.dtype), exact_states[named]),
    ):
        assert found.passed, str(found)
    others = [block for block in range(len(states)) if block not in named]
    assert torch.equal(states[others], before[others])


@settings(max_examples=60, deadline=None)
@given(
    drawn=ROWS,
    dim=st.sampled_from([1, 7, 16]),
    size=st.sampled_from([1, 3, 16]),
    has_d=st.booleans(),
    padding=st.integers(0, 2),
)
def test_outputs_and_states(drawn: tuple[StateRows, int], dim: int, size: int, has_d: bool, padding: int) -> None:
    """Single tokens by the package, rows of any other lengths by the portable kernel."""
    rows, num_blocks = drawn
    update = FakeUpdate()
    inputs = Inputs.random(rows.num_tokens + padding, dim, size, has_d=has_d)
    judge(MambaSsmKernels(lambda: update), inputs, paged_states(num_blocks, dim, size), rows)
    assert update.calls == int(rows.single_tokens)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    rows, update = make_rows([[1]] * 3, [0, 1, 2], [[3], [0], [2]]), FakeUpdate()
    states = torch.randn(4, 8, 5, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    judge(MambaSsmKernels(lambda: update), Inputs.random(3, 8, 5, has_d=True, dtype=dtype), states, rows)
    assert update.calls == 1


def test_numbers_wider_than_float32_run_by_the_portable_kernel() -> None:
    rows, update = make_rows([[1]] * 2, [0, 1], [[2], [1]]), FakeUpdate()
    kernels, inputs = MambaSsmKernels(lambda: update), Inputs.random(2, 8, 5, has_d=True)
    states = torch.zeros(3, 8, 5)
    judge(kernels, inputs.double(), states, rows)
    judge(kernels, inputs, states.double(), rows)
    assert not update.calls


def test_without_the_package_the_portable_kernel_runs() -> None:
    kernels = MambaSsmKernels(lambda: Unavailable("it cannot be imported"))
    rows = make_rows([[1]] * 2, [0, 1], [[2], [1]])
    judge(kernels, Inputs.random(2, 8, 5, has_d=False), torch.ones(3, 8, 5), rows)


def test_bad_input_is_refused() -> None:
    kernels, inputs, states = MambaSsmKernels(FakeUpdate), Inputs.random(1, 8, 5, has_d=True), torch.zeros(3, 8, 5)
    i, rows = inputs, make_rows([[1]], [3], [[1]])
    with pytest.raises(ValueError, match=r"initial_state\[0\] is 3; there are the blocks 0 \(null\) to 2"):
        kernels.selective_scan(i.x, i.dt, i.a, i.b, i.c, i.d, states, rows)
    assert not states.any()
