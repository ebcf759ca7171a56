"""Calls into the compiled causal convolution and selective scan."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from genericbuilders.kernels.native.checks import DTYPES
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.state.validation import MAX_WIDTH, check_conv, check_indices, check_selective

__all__ = ["NativeConvKernels"]

# The layouts of state_args_conv.h's structures, all fields 64 bits wide.
_ROWS = "9q"
_CONV = struct.Struct(f"={_ROWS}14q")
_SELECTIVE = struct.Struct(f"={_ROWS}19q")


class NativeConvKernels:
    """The compiled convolution and selective scan, with signatures of `genericbuilders.kernels.state.protocols`.

    Tensors are on the CPU, states in float32, all others in float32, bfloat16 or float16 (computed in float32). Last
    strides must be 1. The number of threads follows ``torch.get_num_threads()``; results do not depend on it, and a
    row's result not on the other rows.

    Args:
        path: the shared library that `genericbuilders.kernels.native.build.build_library` made.

    Raises:
        OSError: it cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        library = ctypes.CDLL(str(path))
        self._conv = _entry(library, "gb_causal_conv")
        self._selective = _entry(library, "gb_selective_scan")

    def __repr__(self) -> str:
        return f"NativeConvKernels({self.path})"

    def causal_conv(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, conv_state: Tensor, rows: StateRows, *, silu: bool = True
    ) -> Tensor:
        """Convolve each row; see `genericbuilders.kernels.state.protocols.CausalConv`.

        ``x`` may have more tokens than the rows; their output is zero.

        Raises:
            ValueError: shapes, strides or devices that do not fit, a block that there is not, or rows and chunks
                that do not follow each other; nothing is written.
            TypeError: dtypes that are not supported.
        """
        if x.dim() != 2 or weight.dim() != 2 or conv_state.dim() != 3:
            _refuse_conv(x, weight, bias, conv_state, rows)
        dtype = x.dtype
        x, weight = _single("x", x), _single("weight", weight)
        bias = None if bias is None else _single("bias", bias)
        num_blocks, kept, state_dim = conv_state.shape
        num_tokens, dim = x.shape
        num_rows, num_chunks = rows.initial_state.shape[0], rows.chunk_state.shape[0]
        width = weight.shape[1]
        x_strides, weight_strides, state_strides = x.stride(), weight.stride(), conv_state.stride()
        if (
            conv_state.dtype != torch.float32
            or not (x_strides[1] == weight_strides[1] == state_strides[2] == 1)
            or weight.shape[0] != dim
            or not 1 <= width <= MAX_WIDTH
            or state_dim != dim
            or kept != width - 1
            or not num_blocks
            or (bias is not None and (bias.shape != (dim,) or bias.stride(0) != 1))
            or not (x.is_cpu and weight.is_cpu and conv_state.is_cpu)
            or (bias is not None and not bias.is_cpu)
            or _bad_rows(rows, num_tokens, num_rows, num_chunks)
        ):
            _refuse_conv(x, weight, bias, conv_state, rows)
        out = x.new_empty(num_tokens, dim)
        fault = self._conv(
            _CONV.pack(
                num_blocks, rows.num_tokens, num_rows, num_chunks,
                rows.query_start_loc.data_ptr(), rows.initial_state.data_ptr(), rows.row_chunks.data_ptr(),
                rows.chunk_start_loc.data_ptr(), rows.chunk_state.data_ptr(),
                torch.get_num_threads(), num_tokens, dim, width, silu,
                x.data_ptr(), x_strides[0], weight.data_ptr(), weight_strides[0],
                0 if bias is None else bias.data_ptr(),
                conv_state.data_ptr(), state_strides[0], state_strides[1], out.data_ptr(),
            )
        )  # fmt: skip
        if fault:
            _raise_fault(fault, rows, num_blocks)
        return out if dtype == torch.float32 else out.to(dtype)

    def selective_scan(
        self,
        x: Tensor,
        dt: Tensor,
        a: Tensor,
        b: Tensor,
        c: Tensor,
        d: Tensor | None,
        ssm_state: Tensor,
        rows: StateRows,
    ) -> Tensor:
        """Run Mamba's recurrence over each row; see `genericbuilders.kernels.state.protocols.SelectiveScan`.

        ``x`` may have more tokens than the rows; their output is zero.

        Raises:
            ValueError: shapes, strides or devices that do not fit, a block that there is not, or rows and chunks
                that do not follow each other; nothing is written.
            TypeError: dtypes that are not supported.
        """
        if not (x.dim() == dt.dim() == a.dim() == b.dim() == c.dim() == 2) or ssm_state.dim() != 3:
            _refuse_selective(x, dt, a, b, c, d, ssm_state, rows)
        dtype = x.dtype
        x, dt, a, b, c = _single("x", x), _single("dt", dt), _single("a", a), _single("b", b), _single("c", c)
        d = None if d is None else _single("d", d)
        num_blocks, state_dim, state_size = ssm_state.shape
        num_tokens, dim = x.shape
        num_rows, num_chunks = rows.initial_state.shape[0], rows.chunk_state.shape[0]
        x_strides, dt_strides, a_strides = x.stride(), dt.stride(), a.stride()
        b_strides, c_strides, state_strides = b.stride(), c.stride(), ssm_state.stride()
        if (
            ssm_state.dtype != torch.float32
            or not (x_strides[1] == dt_strides[1] == a_strides[1] == b_strides[1] == c_strides[1] == 1)
            or state_strides[2] != 1
            or dt.shape != x.shape
            or a.shape != (dim, state_size)
            or not (b.shape == c.shape == (num_tokens, state_size))
            or state_dim != dim
            or not (num_blocks and state_size)
            or (d is not None and (d.shape != (dim,) or d.stride(0) != 1 or not d.is_cpu))
            or not (x.is_cpu and dt.is_cpu and a.is_cpu and b.is_cpu and c.is_cpu and ssm_state.is_cpu)
            or _bad_rows(rows, num_tokens, num_rows, num_chunks)
        ):
            _refuse_selective(x, dt, a, b, c, d, ssm_state, rows)
        out = x.new_empty(num_tokens, dim)
        fault = self._selective(
            _SELECTIVE.pack(
                num_blocks, rows.num_tokens, num_rows, num_chunks,
                rows.query_start_loc.data_ptr(), rows.initial_state.data_ptr(), rows.row_chunks.data_ptr(),
                rows.chunk_start_loc.data_ptr(), rows.chunk_state.data_ptr(),
                torch.get_num_threads(), num_tokens, dim, state_size,
                x.data_ptr(), x_strides[0], dt.data_ptr(), dt_strides[0], a.data_ptr(), a_strides[0],
                b.data_ptr(), b_strides[0], c.data_ptr(), c_strides[0], 0 if d is None else d.data_ptr(),
                ssm_state.data_ptr(), state_strides[0], state_strides[1], out.data_ptr(),
            )
        )  # fmt: skip
        if fault:
            _raise_fault(fault, rows, num_blocks)
        return out if dtype == torch.float32 else out.to(dtype)


def _entry(library: ctypes.CDLL, name: str) -> Callable[[bytes], int]:
    """One of the library's functions: it takes its packed arguments and returns a fault, 0 for none."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)((name, library))


def _single(name: str, tensor: Tensor) -> Tensor:
    """A tensor in float32, itself where it is that already."""
    if tensor.dtype == torch.float32:
        return tensor
    if tensor.dtype not in DTYPES:
        supported = ", ".join(str(dtype) for dtype in DTYPES)
        raise TypeError(
            f"{name}'s dtype is {tensor.dtype}; the compiled kernels take {supported}: use the portable ones"
        )
    return tensor.float()


def _bad_rows(rows: StateRows, num_tokens: int, num_rows: int, num_chunks: int) -> bool:
    """Whether the index tensors cannot be read as the kernels read them; the cheap form of the checks."""
    starts, initial, row_chunks = rows.query_start_loc, rows.initial_state, rows.row_chunks
    chunk_starts, stores = rows.chunk_start_loc, rows.chunk_state
    return (
        rows.num_tokens > num_tokens
        or initial.shape != (num_rows,)
        or not (starts.shape == row_chunks.shape == (num_rows + 1,))
        or stores.shape != (num_chunks,)
        or chunk_starts.shape != (num_chunks + 1,)
        or not (starts.dtype == initial.dtype == row_chunks.dtype == chunk_starts.dtype == stores.dtype == torch.int32)
        or not (starts.is_cpu and initial.is_cpu and row_chunks.is_cpu and chunk_starts.is_cpu and stores.is_cpu)
        or not (starts.is_contiguous() and initial.is_contiguous() and row_chunks.is_contiguous())
        or not (chunk_starts.is_contiguous() and stores.is_contiguous())
    )


def _refuse_conv(x: Tensor, weight: Tensor, bias: Tensor | None, conv_state: Tensor, rows: StateRows) -> NoReturn:
    """Say why the compiled convolution cannot run."""
    check_conv(x, weight, bias, conv_state, rows)
    _refuse("conv_state", conv_state, x=x, weight=weight, bias=bias)


def _refuse_selective(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None, ssm_state: Tensor, rows: StateRows
) -> NoReturn:
    """Say why the compiled scan cannot run."""
    check_selective(x, dt, a, b, c, d, ssm_state, rows)
    _refuse("ssm_state", ssm_state, x=x, dt=dt, a=a, b=b, c=c, d=d)


def _refuse(states_name: str, states: Tensor, **inputs: Tensor | None) -> NoReturn:
    """What the compiled kernels ask beyond the checks that all kernels share."""
    if states.dtype != torch.float32:
        raise TypeError(
            f"{states_name}'s dtype is {states.dtype}; the compiled kernels keep states in torch.float32: make the "
            "cache so, or use the portable ones"
        )
    given = {name: tensor for name, tensor in inputs.items() if tensor is not None}
    for name, tensor in {**given, states_name: states}.items():
        if not tensor.is_cpu:
            raise ValueError(
                f"{name} is on {tensor.device}; the compiled kernels run on the CPU: use the portable ones"
            )
        if tensor.stride(-1) != 1:
            raise ValueError(
                f"{name}'s last axis has stride {tensor.stride(-1)}; the compiled kernels need 1, also where it is "
                "1 long"
            )
    raise ValueError(f"the tensors do not fit each other: { ({name: tuple(t.shape) for name, t in given.items()}) }")


def _raise_fault(fault: int, rows: StateRows, num_blocks: int) -> NoReturn:
    """Say what a kernel found while it read its indices."""
    check_indices(rows, num_blocks)
    raise ValueError(f"kernel fault {fault & 7} at row or chunk {fault >> 3}")
