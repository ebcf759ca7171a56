"""Rotary embedding against complex multiplication in float64."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from genericbuilders.rotary import Rotary, apply_rotary


@given(tokens=st.integers(0, 5), heads=st.integers(1, 3), half=st.integers(1, 4), rest=st.integers(0, 3))
def test_rotation_is_a_complex_product(tokens: int, heads: int, half: int, rest: int) -> None:
    generator = torch.Generator().manual_seed(tokens + 10 * heads + 100 * half)
    x = torch.randn(tokens, heads, 2 * half + rest, dtype=torch.float64, generator=generator)
    angle = torch.randn(tokens, half, dtype=torch.float64, generator=generator)
    rotary = Rotary(torch.cat((angle.cos(), angle.cos()), -1), torch.cat((angle.sin(), angle.sin()), -1))
    turned = torch.complex(x[..., :half], x[..., half : 2 * half]) * torch.polar(torch.ones_like(angle), angle)[:, None]
    expected = torch.cat((turned.real, turned.imag, x[..., 2 * half :]), -1)
    torch.testing.assert_close(apply_rotary(x, rotary), expected)
