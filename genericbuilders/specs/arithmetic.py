"""Counting tokens, blocks and bytes."""

from __future__ import annotations

import math
from typing import SupportsIndex

__all__ = ["blocks_spanned", "cdiv", "require_at_least", "require_integer", "round_up"]


def cdiv(numerator: int, denominator: int) -> int:
    """The quotient, rounded up: how many parts of ``denominator`` hold ``numerator``."""
    return -(-numerator // denominator)


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of ``multiple`` that is not below ``value``."""
    return cdiv(value, multiple) * multiple


def blocks_spanned(num_tokens: int, block_size: int, start_multiple: int = 1) -> int:
    """The most blocks that a run of consecutive tokens can touch, wherever it starts.

    Args:
        num_tokens: length of the run, in tokens.
        block_size: tokens in a block.
        start_multiple: the run's first position is a multiple of this many tokens; 1 if it may be any.

    The latest start within a block is ``block_size - gcd(start_multiple, block_size)``.
    """
    if num_tokens < 1:
        return 0
    latest_start = block_size - math.gcd(start_multiple, block_size)
    return cdiv(latest_start + num_tokens, block_size)


def require_integer(owner: object, name: str, value: object) -> None:
    """Refuse what only looks like a count: a float would go on and make sizes that are none.

    Raises:
        TypeError: ``value`` is no integer.
    """
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        raise TypeError(f"{type(owner).__name__}: {name} is {value!r}; it must be an integer")


def require_at_least(owner: object, name: str, value: int, minimum: int, unit: str = "") -> None:
    """Refuse a count that is too small, naming the spec, the field, the value and the limit.

    Raises:
        TypeError: ``value`` is no integer.
        ValueError: ``value`` is below ``minimum``.
    """
    require_integer(owner, name, value)
    if value < minimum:
        of = f" {unit}" if unit else ""
        raise ValueError(f"{type(owner).__name__}: {name} is {value}{of}; it must be at least {minimum}")
