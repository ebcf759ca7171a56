"""Normalisation and gated activations: the native and the portable form against float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.kernels import elementwise
from genericbuilders.kernels.select import AttentionKernels, find_kernels
from genericbuilders.kernels.tolerance import compare

NAMES = ["native", "portable"]
DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])
ROWS = st.sampled_from([0, 1, 3, 32, 200])
SIZES = st.sampled_from([1, 7, 8, 31, 33, 64, 576])


def kernels_called(name: str, dtype: torch.dtype = torch.float32) -> AttentionKernels:
    found = find_kernels(name, torch.device("cpu"), dtype)
    if not isinstance(found, AttentionKernels):
        pytest.skip(found.reason)
    return found


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def norm(hidden: Tensor, weight: Tensor) -> Tensor:
    return elementwise.rms_norm(hidden, weight, 1e-5)


@pytest.mark.parametrize("name", NAMES)
@given(rows=ROWS, size=SIZES, dtype=DTYPES, seed=st.integers(0, 5))
def test_rms_norm(name: str, rows: int, size: int, dtype: torch.dtype, seed: int) -> None:
    hidden = random(rows, size + 3, dtype=dtype, seed=seed)[:, :size]
    weight = random(size, dtype=dtype, seed=seed + 1)
    result = kernels_called(name, dtype).rms_norm(hidden, weight, 1e-5)
    found = compare(result, norm(hidden, weight), norm(hidden.double(), weight.double()))
    assert found.passed, str(found)


@pytest.mark.parametrize("name", NAMES)
@given(rows=ROWS, size=SIZES, dtype=DTYPES, in_place=st.booleans())
def test_rms_norm_with_residual(name: str, rows: int, size: int, dtype: torch.dtype, in_place: bool) -> None:
    hidden, residual = random(rows, size, dtype=dtype), random(rows, size, dtype=dtype, seed=1)
    weight = random(size, dtype=dtype, seed=2)
    total = hidden + residual
    out = hidden if in_place else torch.empty_like(hidden)
    result = kernels_called(name, dtype).rms_norm(hidden, weight, 1e-5, residual=residual, out=out)
    assert result is out
    assert torch.equal(residual, total)
    found = compare(result, norm(total, weight), norm(total.double(), weight.double()))
    assert found.passed, str(found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gelu", [False, True])
@given(rows=ROWS, size=SIZES, dtype=DTYPES, given_out=st.booleans())
def test_gated(name: str, gelu: bool, rows: int, size: int, dtype: torch.dtype, given_out: bool) -> None:
    gate_up = 4 * random(rows, 2 * size, dtype=dtype)
    kernels = kernels_called(name, dtype)
    kernel = kernels.gelu_tanh_and_mul if gelu else kernels.silu_and_mul
    plain = elementwise.gelu_tanh_and_mul if gelu else elementwise.silu_and_mul
    out = torch.empty(rows, size, dtype=dtype) if given_out else None
    result = kernel(gate_up, out=out)
    assert out is None or result is out
    found = compare(result, plain(gate_up), plain(gate_up.double()))
    assert found.passed, str(found)


def test_extreme_gates_stay_finite() -> None:
    gate_up = torch.tensor([[-1e4, -100.0, -88.0, 88.0, 1e4, 1.0, 1.0, 1.0, 1.0, 1.0]])
    result = kernels_called("native").silu_and_mul(gate_up)
    torch.testing.assert_close(result, torch.nn.functional.silu(gate_up[:, :5]))


def test_nan_is_not_hidden() -> None:
    assert kernels_called("native").silu_and_mul(torch.full((1, 16), torch.nan)).isnan().all()


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ((torch.zeros(2, 8), torch.zeros(7)), ValueError, r"weight \(7,\)"),
        ((torch.zeros(2, 8), torch.zeros(8).half()), TypeError, "weight is torch.float16"),
        ((torch.zeros(2, 16)[:, ::2], torch.zeros(8)), ValueError, "stride 2"),
        ((torch.zeros(2, 8).double(), torch.zeros(8).double()), TypeError, "use the portable ones"),
    ],
)
def test_native_norm_refuses(arguments: tuple[Tensor, Tensor], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        kernels_called("native").rms_norm(*arguments, 1e-5)


def test_native_norm_refuses_another_residual() -> None:
    with pytest.raises(ValueError, match=r"residual \(3, 8\)"):
        kernels_called("native").rms_norm(torch.zeros(2, 8), torch.zeros(8), 1e-5, residual=torch.zeros(3, 8))


def test_native_activation_refuses_an_odd_width() -> None:
    with pytest.raises(ValueError, match=r"gate_up \(2, 7\)"):
        kernels_called("native").silu_and_mul(torch.zeros(2, 7))
