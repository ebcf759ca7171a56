"""A random rotation of heads: whatever a vector looks like, its turned coordinates look like draws from a normal.

It is a product of signs and of a fixed orthogonal matrix with entries of nearly equal size, twice over: a Hadamard
matrix where the size is a power of 2, and its Kronecker product with a cosine transform for an odd factor. Only
sums, products and cosines in float64 make it, and a generator of its own, so that every process and every device gets
the same one, but for a float64's last bits: pages written by one can be read by another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

__all__ = ["ROTATION_SEED", "rotation"]

ROTATION_SEED = 0
"""The seed of all caches."""

MASK = (1 << 64) - 1


@cache
def rotation(head_size: int, seed: int = ROTATION_SEED) -> Tensor:
    """A random orthogonal matrix ``[head_size, head_size]``, float64, on the CPU; do not change it.

    ``vectors @ rotation(size).T`` turns, ``turned @ rotation(size)`` turns back.

    Raises:
        ValueError: ``head_size`` is below 1.
    """
    if head_size < 1:
        raise ValueError(f"head_size is {head_size}; it must be at least 1")
    spread = _spread(head_size)
    signs = torch.tensor([1.0 - 2.0 * bit for bit in _bits(seed, 2 * head_size)], dtype=torch.float64)
    first, second = signs.view(2, head_size)
    return torch.matmul(spread * second, spread * first)


def _spread(size: int) -> Tensor:
    """An orthogonal matrix none of whose entries is above ``sqrt(2 / size)``, up to rounding."""
    odd = size
    hadamard = torch.ones(1, 1, dtype=torch.float64)
    while odd % 2 == 0:
        odd //= 2
        hadamard = torch.cat((torch.cat((hadamard, hadamard), 1), torch.cat((hadamard, -hadamard), 1)))
    hadamard = hadamard / math.sqrt(len(hadamard))
    rows = [
        [
            math.sqrt((1 if row == 0 else 2) / odd) * math.cos(math.pi * (2 * column + 1) * row / (2 * odd))
            for column in range(odd)
        ]
        for row in range(odd)
    ]
    return torch.kron(torch.tensor(rows, dtype=torch.float64), hadamard)


def _bits(seed: int, count: int) -> Iterator[int]:
    """Random bits: the highest ones of SplitMix64 (Steele et al. 2014)."""
    state = seed & MASK
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        yield (mixed ^ (mixed >> 31)) >> 63
