"""The rotation of heads: orthogonal, the same everywhere, and one that spreads what stands in one place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genericbuilders.kernels.quant.lloyd_max import lloyd_max
from genericbuilders.kernels.quant.rotation import rotation

ROOT = Path(__file__).parents[3]


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 300), seed=st.integers(0, 2**64 - 1))
def test_it_is_orthogonal(size: int, seed: int) -> None:
    turn = rotation(size, seed)
    torch.testing.assert_close(turn @ turn.T, torch.eye(size, dtype=torch.float64), atol=1e-12, rtol=0)


def test_another_process_has_the_same_one() -> None:
    source = "from genericbuilders.kernels.quant.rotation import rotation; print(rotation(80).flatten().tolist())"
    result = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    theirs = torch.tensor([float(number) for number in result.stdout.strip("[]\n").split(",")], dtype=torch.float64)
    torch.testing.assert_close(theirs, rotation(80).flatten(), atol=1e-14, rtol=0)


def test_seeds_differ() -> None:
    assert not torch.equal(rotation(64, 0), rotation(64, 1))


@pytest.mark.parametrize("size", [64, 80, 96, 128])
def test_vectors_far_from_a_normal_are_quantised_as_well_as_a_normal(size: int) -> None:
    # Without the rotation a vector with one element other than 0 has an error of about 1: its large coordinate is far
    # beyond the last level.
    one_hot = torch.eye(size, dtype=torch.float64) * size**0.5
    ones = torch.ones(1, size, dtype=torch.float64)
    codebook = lloyd_max(4)
    levels = torch.tensor(codebook.levels, dtype=torch.float64)
    thresholds = torch.tensor(codebook.thresholds, dtype=torch.float64)

    def error(vectors: torch.Tensor) -> float:
        return float((levels[torch.bucketize(vectors, thresholds)] - vectors).square().mean())

    assert error(one_hot) > 0.3
    assert error(one_hot @ rotation(size).T) < 1.5 * codebook.mean_squared_error
    assert error(ones @ rotation(size).T) < 3 * codebook.mean_squared_error


def test_an_empty_head_is_refused() -> None:
    with pytest.raises(ValueError, match="head_size is 0"):
        rotation(0)
