"""What the convolution and the selective scan ask of their inputs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.validation import check_rows

__all__ = ["MAX_WIDTH", "check_conv", "check_indices", "check_row_tensors", "check_selective"]

MAX_WIDTH = 8
_Indices = npt.NDArray[np.int32]


def check_conv(x: Tensor, weight: Tensor, bias: Tensor | None, conv_state: Tensor, rows: StateRows) -> None:
    """Check shapes, dtypes and devices of `genericbuilders.kernels.state.protocols.CausalConv`'s arguments.

    ``x`` may have more tokens than the rows: tokens of padding, for which the output is zero.

    Raises:
        ValueError: axes, strides or devices do not fit.
        TypeError: a tensor is not of floating point, or an index not int32.
    """
    check_rows("x", x, 2)
    check_rows("conv_state", conv_state, 3)
    if weight.dim() != 2 or weight.shape[0] != x.shape[1] or not 1 <= weight.shape[1] <= MAX_WIDTH:
        raise ValueError(
            f"weight is {tuple(weight.shape)}; it must be [conv_dim, width], with x's conv_dim {x.shape[1]} and a "
            f"width of 1 to {MAX_WIDTH}"
        )
    if bias is not None and bias.shape != x.shape[1:]:
        raise ValueError(f"bias is {tuple(bias.shape)}; it must be [conv_dim], ({x.shape[1]},), or None")
    if conv_state.shape[1:] != (weight.shape[1] - 1, x.shape[1]) or not conv_state.shape[0]:
        raise ValueError(
            f"conv_state is {tuple(conv_state.shape)}; it must be [num_blocks, width - 1, conv_dim], (..., "
            f"{weight.shape[1] - 1}, {x.shape[1]}): was the cache made for another layer?"
        )
    _check_floats(x=x, weight=weight, bias=bias, conv_state=conv_state)
    check_row_tensors("conv_state", conv_state, "x", x, rows)


def check_selective(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None, ssm_state: Tensor, rows: StateRows
) -> None:
    """Check shapes, dtypes and devices of `genericbuilders.kernels.state.protocols.SelectiveScan`'s arguments.

    ``x`` may have more tokens than the rows: tokens of padding, for which the output is zero.

    Raises:
        ValueError: axes, strides or devices do not fit.
        TypeError: a tensor is not of floating point, or an index not int32.
    """
    check_rows("x", x, 2)
    check_rows("ssm_state", ssm_state, 3)
    num_tokens, dim = x.shape
    if dt.shape != x.shape:
        raise ValueError(f"dt is {tuple(dt.shape)}; it must be [num_tokens, dim] like x, {tuple(x.shape)}")
    if a.dim() != 2 or a.shape[0] != dim or not a.shape[1]:
        raise ValueError(f"a is {tuple(a.shape)}; it must be [dim, state_size], with x's dim {dim}")
    for name, tensor in (("b", b), ("c", c)):
        if tensor.shape != (num_tokens, a.shape[1]):
            raise ValueError(
                f"{name} is {tuple(tensor.shape)}; it must be [num_tokens, state_size], ({num_tokens}, {a.shape[1]})"
            )
    if d is not None and d.shape != (dim,):
        raise ValueError(f"d is {tuple(d.shape)}; it must be [dim], ({dim},), or None")
    if ssm_state.shape[1:] != a.shape or not ssm_state.shape[0]:
        raise ValueError(
            f"ssm_state is {tuple(ssm_state.shape)}; it must be [num_blocks, dim, state_size], (..., {a.shape[0]}, "
            f"{a.shape[1]}): was the cache made for another layer?"
        )
    _check_floats(x=x, dt=dt, a=a, b=b, c=c, d=d, ssm_state=ssm_state)
    check_row_tensors("ssm_state", ssm_state, "x", x, rows)


def check_indices(rows: StateRows, num_blocks: int) -> None:
    """Check what the index tensors hold; they must be on the CPU.

    Raises:
        ValueError: a block that there is not, or rows and chunks that do not follow each other.
    """
    starts, row_chunks, chunk_starts = (
        index.numpy() for index in (rows.query_start_loc, rows.row_chunks, rows.chunk_start_loc)
    )
    _check_ascending("row_chunks", row_chunks, len(rows.chunk_state))
    _check_blocks("initial_state", rows.initial_state.numpy(), 0, num_blocks)
    first, last = int(row_chunks[0]), int(row_chunks[-1])
    _check_ascending("chunk_start_loc", chunk_starts[first : last + 1], rows.num_tokens, first)
    _check_blocks("chunk_state", rows.chunk_state.numpy()[first:last], first, num_blocks)
    wrong = starts != chunk_starts[row_chunks]
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"query_start_loc[{row}] is {starts[row]} and chunk_start_loc[{row_chunks[row]}], where row_chunks has "
            f"that row begin, {chunk_starts[row_chunks[row]]}; they must be the same"
        )


def _check_ascending(name: str, values: _Indices, limit: int, first: int = 0) -> None:
    """Check that values never fall and are 0 to ``limit``; ``first`` is the index of the first one."""
    falls = np.diff(values) < 0
    if falls.any():
        place = int(falls.argmax())
        raise ValueError(
            f"{name} falls from {values[place]} to {values[place + 1]} at {first + place + 1}; it must ascend"
        )
    if values[0] < 0 or values[-1] > limit:
        raise ValueError(f"{name} runs from {values[0]} to {values[-1]}; it must stay within 0 to {limit}")


def _check_blocks(name: str, blocks: _Indices, first: int, num_blocks: int) -> None:
    """Check that blocks exist; ``first`` is the index of the first one."""
    wrong = (blocks < 0) | (blocks >= num_blocks)
    if wrong.any():
        place = int(wrong.argmax())
        raise ValueError(
            f"{name}[{first + place}] is {blocks[place]}; there are the blocks 0 (null) to {num_blocks - 1}"
        )


def _check_floats(**tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and not tensor.is_floating_point():
            raise TypeError(f"{name} is {tensor.dtype}; it must be of floating point")


def check_row_tensors(states_name: str, states: Tensor, x_name: str, x: Tensor, rows: StateRows) -> None:
    """Check shapes, dtypes and devices of the index tensors, and that there are inputs for all tokens.

    Raises:
        ValueError: axes, strides or devices do not fit, or there are fewer inputs than tokens.
        TypeError: an index is not int32.
    """
    if x.device != states.device:
        raise ValueError(f"{x_name} is on {x.device} and {states_name} on {states.device}; they must be on one device")
    if rows.num_tokens > x.shape[0]:
        raise ValueError(f"rows has {rows.num_tokens} tokens and {x_name} {x.shape[0]}")
    num_rows, num_chunks = len(rows.initial_state), len(rows.chunk_state)
    for name, index, size in (
        ("query_start_loc", rows.query_start_loc, num_rows + 1),
        ("initial_state", rows.initial_state, num_rows),
        ("row_chunks", rows.row_chunks, num_rows + 1),
        ("chunk_start_loc", rows.chunk_start_loc, num_chunks + 1),
        ("chunk_state", rows.chunk_state, num_chunks),
    ):
        if index.dtype != torch.int32:
            raise TypeError(f"rows.{name} is {index.dtype}; it must be torch.int32")
        if index.shape != (size,) or not index.is_contiguous():
            raise ValueError(
                f"rows.{name} is {tuple(index.shape)} with strides {index.stride()}; it must be ({size},), contiguous, "
                f"for {num_rows} rows and {num_chunks} chunks"
            )
        if index.device != states.device:
            raise ValueError(f"rows.{name} is on {index.device} and {states_name} on {states.device}")
