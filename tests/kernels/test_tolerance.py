from __future__ import annotations

import pytest
import torch

from genericbuilders.kernels.tolerance import compare, compare_to_reference


def test_equal_results_pass() -> None:
    exact = torch.linspace(-1, 1, 50, dtype=torch.float64)
    assert compare(exact.float(), exact.float(), exact).passed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_error_of_many_roundings_is_outside_and_found(dtype: torch.dtype) -> None:
    exact = torch.linspace(1, 2, 50, dtype=torch.float64).view(5, 10)
    wrong = exact.to(dtype)
    wrong[3, 4] += 40 * torch.finfo(dtype).eps
    found = compare(wrong, exact.to(dtype), exact)
    assert not found.passed
    assert found.index == (3, 4)
    assert "OUTSIDE" in str(found)


def test_nan_is_never_near() -> None:
    exact = torch.zeros(3, dtype=torch.float64)
    assert not compare(torch.tensor([0.0, torch.nan, 0.0]), exact.float(), exact).passed


def test_empty_results_pass() -> None:
    empty = torch.zeros(0, 4)
    assert compare(empty, empty, empty.double()).passed


def test_reference_is_run_in_both_dtypes() -> None:
    left, right = torch.randn(4, 8), torch.randn(8, 3)
    assert compare_to_reference((left.double() @ right.double()).float(), torch.matmul, (left, right)).passed
    assert not compare_to_reference(left @ right + 0.01, torch.matmul, (left, right)).passed


def test_shapes_and_dtype_are_checked() -> None:
    with pytest.raises(ValueError, match=r"working \(2,\)"):
        compare(torch.zeros(3), torch.zeros(2), torch.zeros(3, dtype=torch.float64))
    with pytest.raises(ValueError, match="float64 run"):
        compare(torch.zeros(3), torch.zeros(3), torch.zeros(3))
