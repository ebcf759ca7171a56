"""Quantised caches for tests: by mode, with a derived bound for each number that they store."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from genericbuilders.kernels.quant.formats import FORMATS, Coding, VectorFormat, slot_format
from genericbuilders.kernels.quant.lloyd_max import lloyd_max
from genericbuilders.kernels.quant.slots import SlotCodec
from genericbuilders.specs import KVQuantMode

__all__ = ["MAX_1960", "MODES", "element_bound", "lengths", "make_codec", "turned_deviation", "turned_error"]

MODES = tuple(FORMATS)
MAX_1960 = {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009497}
"""Mean squared error of the best quantiser of a unit-variance normal, by bits (Max 1960, table I)."""
CPU = torch.device("cpu")
# Roundings of float32 on the way to a code and back.
SLACK = 8 * 2.0**-24


def make_codec(mode: KVQuantMode, head_size: int) -> SlotCodec:
    """A codec on the CPU."""
    return SlotCodec(slot_format(mode, head_size), CPU)


def element_bound(vectors: Tensor, vector_format: VectorFormat) -> Tensor:
    """How far elements may lie from what is stored of them at most, ``[..., size]`` float64; not for turned vectors.

    Int8 has steps of the factor, the largest element over 127, and so errors of half of it. Float8 e4m3 has 3 bits
    behind the leading one, so that half a step is 2^-4 of a number, and 2^-10 of the factor below the smallest normal
    one.
    """
    vectors = vectors.double()
    largest = vectors.abs().amax(-1, keepdim=True)
    if vector_format.coding is Coding.INT8:
        return (largest / 254).expand_as(vectors) + SLACK * largest
    factor = largest / 448 if vector_format.factor_bytes else torch.ones_like(largest)
    return torch.maximum(vectors.abs() * 2.0**-4, factor * 2.0**-10) + SLACK * largest


def lengths(vectors: Tensor) -> Tensor:
    """``[...]`` from vectors ``[..., size]``."""
    return vectors.square().sum(-1).sqrt()


def turned_error(bits: int, head_size: int) -> float:
    """The mean squared error of turned vectors, in parts of their mean square: a float64 run of the definition.

    Turned at random, a vector points anywhere. Its coordinates, made as large as a normal's, go to their nearest
    levels, and those together get the vector's length again.
    """
    return float(_turned_shares(bits, head_size).mean())


def turned_deviation(bits: int, head_size: int) -> float:
    """By how much single vectors' shares differ from `turned_error`: their standard deviation in that run."""
    return float(_turned_shares(bits, head_size).std())


@cache
def _turned_shares(bits: int, head_size: int) -> Tensor:
    """``[20_000]``: each vector's squared error in parts of its square."""
    generator = torch.Generator().manual_seed(bits)
    vectors = torch.randn(20_000, head_size, generator=generator, dtype=torch.float64)
    vectors = vectors * (head_size**0.5 / lengths(vectors)[..., None])
    levels = torch.tensor(lloyd_max(bits).levels, dtype=torch.float64)
    stored = levels[(vectors[..., None] - levels).abs().argmin(-1)]
    stored = stored * (head_size**0.5 / lengths(stored)[..., None])
    error: Tensor = stored - vectors
    return error.square().mean(-1)
