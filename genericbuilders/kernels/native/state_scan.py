"""Calls into the compiled decaying scan and delta rule."""

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
from genericbuilders.kernels.state.validation import check_indices
from genericbuilders.kernels.state.validation_scan import check_scan

__all__ = ["NativeScanKernels"]

# The layout of state_args_scan.h's structure, all fields 64 bits wide.
_SCAN = struct.Struct("=9q6q3q3q3q3q3q4qq")


class NativeScanKernels:
    """The compiled decaying scan and delta rule, with signatures of `genericbuilders.kernels.state.protocols`.

    Tensors are on the CPU, states in float32, all others in float32, bfloat16 or float16 (computed in float32). The
    states' last stride must be 1. The number of threads follows ``torch.get_num_threads()``; results do not depend on
    it, and a row's result not on the other rows.

    Args:
        path: the shared library that `genericbuilders.kernels.native.build.build_library` made.

    Raises:
        OSError: it cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        library = ctypes.CDLL(str(path))
        self._decay = _entry(library, "gb_decay_scan")
        self._delta = _entry(library, "gb_delta_scan")

    def __repr__(self) -> str:
        return f"NativeScanKernels({self.path})"

    def decay_scan(
        self, query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, ssm_state: Tensor, rows: StateRows
    ) -> Tensor:
        """Run the decaying scan; see `genericbuilders.kernels.state.protocols.DecayScan`.

        The tensors may have more tokens than the rows; their output is zero.

        Raises:
            ValueError: shapes, strides or devices that do not fit, a block that there is not, or rows and chunks
                that do not follow each other; nothing is written.
            TypeError: dtypes that are not supported.
        """
        return _run(self._decay, query, key, value, log_decay, None, ssm_state, rows)

    def delta_scan(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        log_decay: Tensor,
        beta: Tensor,
        ssm_state: Tensor,
        rows: StateRows,
    ) -> Tensor:
        """Run the gated delta rule; see `genericbuilders.kernels.state.protocols.DeltaScan`.

        The tensors may have more tokens than the rows; their output is zero.

        Raises:
            ValueError: shapes, strides or devices that do not fit, a block that there is not, or rows and chunks
                that do not follow each other; nothing is written.
            TypeError: dtypes that are not supported.
        """
        return _run(self._delta, query, key, value, log_decay, beta, ssm_state, rows)


def _entry(library: ctypes.CDLL, name: str) -> Callable[[bytes], int]:
    """One of the library's functions: it takes its packed arguments and returns a fault, 0 for none."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)((name, library))


def _run(
    kernel: Callable[[bytes], int],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor | None,
    ssm_state: Tensor,
    rows: StateRows,
) -> Tensor:
    if _bad(query, key, value, log_decay, beta, ssm_state, rows):
        _refuse(query, key, value, log_decay, beta, ssm_state, rows)
    dtype = value.dtype
    # No-ops for what is in float32 already, and its last stride 1.
    query, key, value, log_decay = _plain(query), _plain(key), _plain(value), log_decay.float()
    beta = None if beta is None else beta.float()
    num_tokens, num_groups, key_size = query.shape
    num_blocks, num_heads, value_size, _ = ssm_state.shape
    query_strides, key_strides, value_strides = query.stride(), key.stride(), value.stride()
    decay_strides, state_strides = log_decay.stride(), ssm_state.stride()
    beta_pointer, beta_strides = (0, (0, 0)) if beta is None else (beta.data_ptr(), beta.stride())
    out = torch.empty(num_tokens, num_heads, value_size)
    fault = kernel(
        _SCAN.pack(
            num_blocks, rows.num_tokens, len(rows.initial_state), len(rows.chunk_state),
            rows.query_start_loc.data_ptr(), rows.initial_state.data_ptr(), rows.row_chunks.data_ptr(),
            rows.chunk_start_loc.data_ptr(), rows.chunk_state.data_ptr(),
            torch.get_num_threads(), num_tokens, num_heads, num_groups, value_size, key_size,
            query.data_ptr(), query_strides[0], query_strides[1],
            key.data_ptr(), key_strides[0], key_strides[1],
            value.data_ptr(), value_strides[0], value_strides[1],
            log_decay.data_ptr(), decay_strides[0], decay_strides[1],
            beta_pointer, beta_strides[0], beta_strides[1],
            ssm_state.data_ptr(), state_strides[0], state_strides[1], state_strides[2], out.data_ptr(),
        )
    )  # fmt: skip
    if fault:
        check_indices(rows, num_blocks)
        raise ValueError(f"kernel fault {fault & 7} at row or chunk {fault >> 3}")
    return out.to(dtype)


def _plain(tensor: Tensor) -> Tensor:
    """A tensor in float32 whose last stride is 1; itself where it is that already."""
    tensor = tensor.float()
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _bad(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor | None,
    ssm_state: Tensor,
    rows: StateRows,
) -> bool:
    """Whether something does not fit; the cheap form of the checks."""
    if query.dim() != 3 or value.dim() != 3 or ssm_state.dim() != 4:
        return True
    num_tokens, num_groups, key_size = query.shape
    num_heads, value_size = value.shape[1:]
    num_rows, num_chunks = len(rows.initial_state), len(rows.chunk_state)
    indices = (rows.query_start_loc, rows.initial_state, rows.row_chunks, rows.chunk_start_loc, rows.chunk_state)
    return (
        ssm_state.dtype != torch.float32
        or not (query.dtype in DTYPES and key.dtype in DTYPES and value.dtype in DTYPES and log_decay.dtype in DTYPES)
        or key.shape != query.shape
        or value.shape[0] != num_tokens
        or log_decay.shape != (num_tokens, num_heads)
        or ssm_state.shape[1:] != (num_heads, value_size, key_size)
        or not (len(ssm_state) and num_groups and value_size and key_size)
        or num_heads % num_groups != 0
        or (key_size > 1 and ssm_state.stride(3) != 1)
        or not (query.is_cpu and key.is_cpu and value.is_cpu and log_decay.is_cpu and ssm_state.is_cpu)
        or (beta is not None and (beta.shape != log_decay.shape or beta.dtype not in DTYPES or not beta.is_cpu))
        or rows.num_tokens > num_tokens
        or [len(index) for index in indices] != [num_rows + 1, num_rows, num_rows + 1, num_chunks + 1, num_chunks]
        or not all(
            index.dtype == torch.int32 and index.dim() == 1 and index.is_cpu and index.is_contiguous()
            for index in indices
        )
    )


def _refuse(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor | None,
    ssm_state: Tensor,
    rows: StateRows,
) -> NoReturn:
    """Say why the compiled kernels cannot run."""
    if ssm_state.dtype != torch.float32:
        raise TypeError(
            f"ssm_state's dtype is {ssm_state.dtype}; the compiled kernels keep states in torch.float32: make the "
            "cache so, or use the portable ones"
        )
    check_scan(query, key, value, log_decay, beta, ssm_state, rows)
    supported = ", ".join(str(dtype) for dtype in DTYPES)
    given = {"query": query, "key": key, "value": value, "log_decay": log_decay, "beta": beta}
    for name, tensor in given.items():
        if tensor is not None and tensor.dtype not in DTYPES:
            raise TypeError(f"{name} is {tensor.dtype}; the compiled kernels take {supported}: use the portable ones")
    if not ssm_state.is_cpu:
        raise ValueError(
            f"the tensors are on {ssm_state.device}; the compiled kernels run on the CPU: use the portable ones"
        )
    if ssm_state.shape[3] > 1 and ssm_state.stride(3) != 1:
        raise ValueError(f"ssm_state's last axis has stride {ssm_state.stride(3)}; the compiled kernels need 1")
    raise ValueError(
        f"query is {tuple(query.shape)} and value {tuple(value.shape)}; key_size and value_size must be at least 1"
    )
