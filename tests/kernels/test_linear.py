from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genericbuilders.kernels.linear import PackedLinear
from genericbuilders.kernels.tolerance import compare


@given(
    rows=st.sampled_from([0, 1, 2, 31, 32, 33]),
    inner=st.sampled_from([1, 7, 64, 576]),
    outer=st.sampled_from([1, 5, 64, 192]),
    bias=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    pack=st.booleans(),
)
def test_near_exact(rows: int, inner: int, outer: int, bias: bool, dtype: torch.dtype, pack: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(outer, inner, generator=generator).to(dtype)
    offset = torch.randn(outer, generator=generator).to(dtype) if bias else None
    hidden = torch.randn(rows, inner, generator=generator).to(dtype)
    result = PackedLinear(weight, offset, pack=pack)(hidden)
    working = torch.nn.functional.linear(hidden, weight, offset)
    exact = torch.nn.functional.linear(hidden.double(), weight.double(), None if offset is None else offset.double())
    assert result.dtype == dtype
    assert (found := compare(result, working, exact)).passed, str(found)


def test_leading_axes_are_kept() -> None:
    assert PackedLinear(torch.randn(6, 4))(torch.randn(2, 3, 4)).shape == (2, 3, 6)


def test_rows_hardly_depend_on_how_many_there_are() -> None:
    generator = torch.Generator().manual_seed(0)
    linear = PackedLinear(torch.randn(192, 576, generator=generator))
    hidden = torch.randn(64, 576, generator=generator)
    whole = linear(hidden)
    for rows in (1, 2, 31, 33):
        torch.testing.assert_close(linear(hidden[:rows]), whole[:rows], rtol=1e-5, atol=1e-4)


def test_bias_must_fit() -> None:
    with pytest.raises(ValueError, match=r"bias \(3,\)"):
        PackedLinear(torch.zeros(4, 2), torch.zeros(3))


def test_repr_names_the_form() -> None:
    assert "plain" in repr(PackedLinear(torch.zeros(4, 2), pack=False))
