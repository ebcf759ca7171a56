"""The codebooks: Max's errors, on a normal and on turned coordinates, and the two conditions of an optimum."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from quantised_caches import MAX_1960
from torch import Tensor

from genericbuilders.kernels.quant.lloyd_max import Codebook, lloyd_max
from genericbuilders.kernels.quant.rotation import rotation


def quantise(numbers: Tensor, codebook: Codebook) -> Tensor:
    thresholds = torch.tensor(codebook.thresholds, dtype=numbers.dtype)
    return torch.tensor(codebook.levels, dtype=numbers.dtype)[torch.bucketize(numbers, thresholds)]


@pytest.mark.parametrize("bits", MAX_1960)
def test_errors_are_those_of_maxs_table(bits: int) -> None:
    codebook = lloyd_max(bits)
    assert codebook.mean_squared_error == pytest.approx(MAX_1960[bits], rel=1e-3)
    assert codebook.bits == bits
    assert len(codebook.levels) == 2**bits == len(codebook.thresholds) + 1


@pytest.mark.parametrize("bits", MAX_1960)
@pytest.mark.parametrize("head_size", [64, 80, 128])
def test_turned_normal_coordinates_have_that_error(bits: int, head_size: int) -> None:
    generator = torch.Generator().manual_seed(bits)
    vectors = torch.randn(2**21 // head_size, head_size, generator=generator, dtype=torch.float64)
    turned = vectors @ rotation(head_size).T
    error = float((quantise(turned, lloyd_max(bits)) - turned).square().mean())
    assert error == pytest.approx(MAX_1960[bits], rel=0.02)


@pytest.mark.parametrize("bits", MAX_1960)
def test_every_level_is_the_mean_of_its_cell_and_every_threshold_halfway(bits: int) -> None:
    codebook = lloyd_max(bits)
    assert codebook.thresholds == tuple((low + high) / 2 for low, high in pairwise(codebook.levels))
    numbers = torch.linspace(-9, 9, 1_800_001, dtype=torch.float64)
    density = torch.exp(-(numbers**2) / 2)
    codes = torch.bucketize(numbers, torch.tensor(codebook.thresholds, dtype=torch.float64))
    mass = torch.zeros(2**bits, dtype=torch.float64).index_add_(0, codes, density)
    moment = torch.zeros(2**bits, dtype=torch.float64).index_add_(0, codes, density * numbers)
    torch.testing.assert_close(
        moment / mass, torch.tensor(codebook.levels, dtype=torch.float64), atol=1e-5, rtol=0, msg="not the means"
    )


def test_one_bit_is_known_in_closed_form() -> None:
    codebook = lloyd_max(1)
    assert codebook.levels == pytest.approx((-math.sqrt(2 / math.pi), math.sqrt(2 / math.pi)), abs=1e-14)
    assert codebook.mean_squared_error == pytest.approx(1 - 2 / math.pi, abs=1e-14)


@pytest.mark.parametrize("bits", [0, 5, -1])
def test_other_numbers_of_bits_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match=rf"1 to 4 bits a number, not {bits}"):
        lloyd_max(bits)
