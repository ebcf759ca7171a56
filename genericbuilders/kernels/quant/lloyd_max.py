"""The scalar quantisers of least mean squared error for a unit-variance normal (Lloyd 1957, Max 1960)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import NormalDist

__all__ = ["MAX_BITS", "Codebook", "lloyd_max"]

MAX_BITS = 4
"""More bits would gain nothing on formats that take a byte."""

# Lloyd's iteration converges linearly: 4 bits take about 600 rounds to come to rest.
MAX_ROUNDS = 20_000
AT_REST = 1e-14


@dataclass(frozen=True)
class Codebook:
    """A quantiser for one number.

    Attributes:
        levels: ascending: what each code stands for; symmetric about 0.
        thresholds: ascending, one less: a number gets as code the count of thresholds below it.
        mean_squared_error: of a unit-variance normal.
    """

    levels: tuple[float, ...]
    thresholds: tuple[float, ...]
    mean_squared_error: float

    @property
    def bits(self) -> int:
        """The bits of a code."""
        return (len(self.levels) - 1).bit_length()


@cache
def lloyd_max(bits: int) -> Codebook:
    """The best quantiser with ``2 ** bits`` levels for a unit-variance normal, by Lloyd's iteration.

    Each level is moved to the mean of the numbers that are nearest to it, until none moves any more. The density is
    log-concave, so that there is only one such place.

    Args:
        bits: 1 to `MAX_BITS`.

    Raises:
        ValueError: another number of bits.
    """
    if not 1 <= bits <= MAX_BITS:
        raise ValueError(f"a codebook has 1 to {MAX_BITS} bits a number, not {bits}")
    count = 2 ** (bits - 1)
    # The upper half of the levels alone: the lower one mirrors it, and tails above 0 keep their precision.
    upper = [NormalDist().inv_cdf(0.5 + (index + 0.5) / (2 * count)) for index in range(count)]
    for _ in range(MAX_ROUNDS):
        moved = [_mean(low, high) for low, high in _cells(upper)]
        distance = max(abs(new - old) for new, old in zip(moved, upper, strict=True))
        upper = moved
        if distance < AT_REST:
            break
    levels = (*(-level for level in reversed(upper)), *upper)
    # At rest, a level is the mean of its cell, so that the error is the variance less that of the levels.
    kept = 2 * sum(_mass(low, high) * level**2 for (low, high), level in zip(_cells(upper), upper, strict=True))
    return Codebook(levels, tuple((low + high) / 2 for low, high in pairwise(levels)), 1.0 - kept)


def _cells(upper: Sequence[float]) -> list[tuple[float, float]]:
    """The ranges of numbers that are nearest to each level; ``upper`` are the levels above 0."""
    ends = [0.0, *((low + high) / 2 for low, high in pairwise(upper)), math.inf]
    return list(pairwise(ends))


def _mass(low: float, high: float) -> float:
    """The probability of a normal between two numbers that are not negative."""
    return 0.5 * (math.erfc(low / math.sqrt(2)) - math.erfc(high / math.sqrt(2)))


def _mean(low: float, high: float) -> float:
    """The mean of a normal between two numbers that are not negative."""
    density = (math.exp(-(low**2) / 2) - math.exp(-(high**2) / 2)) / math.sqrt(2 * math.pi)
    return density / _mass(low, high)
