"""What both sides of the decode benchmark are given. Needs torch alone, since a peer's environment runs it, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["DTYPES", "Inputs", "Shape", "make_inputs", "milliseconds", "sample"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Shape(NamedTuple):
    """A batch of requests that decode one token each.

    Attributes:
        dtype: one of `DTYPES`.
        num_reqs: requests.
        context: tokens in each one's sequence, the new one included.
        num_heads: query heads.
        num_kv_heads: key-value heads.
        head_size: of keys and values.
        block_size: tokens in a block.
        window: tokens that a token sees; 0 for all.
    """

    dtype: str
    num_reqs: int
    context: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    block_size: int
    window: int


class Inputs(NamedTuple):
    """A batch's tensors.

    Attributes:
        query: ``[num_reqs, num_heads, head_size]``.
        keys: ``[num_reqs * context, num_kv_heads, head_size]``, by request.
        values: like ``keys``.
        block_table: ``[num_reqs, columns]`` int32, blocks in random order.
        slot_mapping: ``[num_reqs * context]`` int64: where each key belongs.
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    block_table: Tensor
    slot_mapping: Tensor


def make_inputs(shape: Shape) -> Inputs:
    """The same numbers for each call, whoever calls."""
    generator = torch.Generator().manual_seed(0)
    dtype, num_tokens = DTYPES[shape.dtype], shape.num_reqs * shape.context

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator).to(dtype)

    columns = -(-shape.context // shape.block_size)
    order = torch.randperm(shape.num_reqs * columns, generator=generator)
    table = order.view(shape.num_reqs, columns)
    position = torch.arange(shape.context)
    slots = table[:, position // shape.block_size] * shape.block_size + position % shape.block_size
    return Inputs(
        query=normal(shape.num_reqs, shape.num_heads, shape.head_size),
        keys=normal(num_tokens, shape.num_kv_heads, shape.head_size),
        values=normal(num_tokens, shape.num_kv_heads, shape.head_size),
        block_table=table.to(torch.int32),
        slot_mapping=slots.flatten(),
    )


def sample(result: Tensor) -> list[float]:
    """Some of a result's numbers, spread over it."""
    return [float(value) for value in result.flatten()[::997]]


def milliseconds(call: Callable[[], object], seconds: float) -> float:
    """The mean time of one call, over as many in a row as fit into ``seconds``, at least two."""
    count, start = 0, time.perf_counter()
    while True:
        call()
        count += 1
        spent = time.perf_counter() - start
        if count > 1 and spent > seconds:
            return spent / count * 1e3
