"""The causal convolution by causal-conv1d's CUDA kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.packages import DTYPES, find_package
from genericbuilders.kernels.state import portable_conv
from genericbuilders.kernels.state.portable_conv import last_stores, read_states, store_states
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.state.validation import check_conv, check_indices

__all__ = [
    "CausalConv1dFn",
    "CausalConv1dFunctions",
    "CausalConv1dKernels",
    "CausalConv1dUpdate",
    "find_causal_conv1d",
    "load_causal_conv1d",
]

# What the kernels take: widths, and a multiple of channels.
WIDTHS = range(2, 5)
CHANNELS = 8


class CausalConv1dFn(Protocol):
    """``causal_conv1d_fn``, as far as it is used here."""

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, activation: str | None) -> Tensor:
        """A sequence behind zeros, ``[1, conv_dim, num_tokens]``.

        Args:
            x: ``[1, conv_dim, num_tokens]``, in memory token by token.
            weight: ``[conv_dim, width]``.
            bias: ``[conv_dim]``, or ``None``.
            activation: ``"silu"`` or ``None``.
        """
        ...


class CausalConv1dUpdate(Protocol):
    """``causal_conv1d_update``, as far as it is used here."""

    def __call__(
        self, x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None
    ) -> Tensor:
        """One token for each state, ``[num_rows, conv_dim]``.

        Args:
            x: ``[num_rows, conv_dim]``.
            conv_state: ``[num_rows, conv_dim, width - 1]``, oldest first; changed.
            weight: ``[conv_dim, width]``.
            bias: ``[conv_dim]``, or ``None``.
            activation: ``"silu"`` or ``None``.
        """
        ...


@dataclass(frozen=True)
class CausalConv1dFunctions:
    """What is used of causal-conv1d.

    Attributes:
        whole: convolves a sequence.
        update: convolves one token for each state.
    """

    whole: CausalConv1dFn
    update: CausalConv1dUpdate


def find_causal_conv1d() -> str | Unavailable:
    """The version of causal-conv1d, or why it cannot be used; it is not imported."""
    return find_package("causal_conv1d", "causal-conv1d", (1, 7), "causal_conv1d_cuda")


def load_causal_conv1d() -> CausalConv1dFunctions:
    """Import causal-conv1d.

    Raises:
        ImportError: that fails, as where its extension was compiled for another torch.
    """
    package = import_module("causal_conv1d")
    return CausalConv1dFunctions(whole=package.causal_conv1d_fn, update=package.causal_conv1d_update)


class CausalConv1dKernels:
    """The convolution with the signature of `genericbuilders.kernels.state.protocols.CausalConv`.

    causal-conv1d runs widths of 2 to 4 over a multiple of 8 channels, where inputs and states are of one dtype and
    weights and bias of one, each of float32, bfloat16 and float16. All else runs by the portable kernel.

    Args:
        functions: gives causal-conv1d's functions, or why there are none; called when they are first needed.
    """

    def __init__(self, functions: Callable[[], CausalConv1dFunctions | Unavailable]) -> None:
        self._functions = functions

    def causal_conv(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, conv_state: Tensor, rows: StateRows, *, silu: bool = True
    ) -> Tensor:
        """Convolve each row.

        ``x`` may have more tokens than the rows; their output is zero.

        Raises:
            ValueError: axes, strides or devices that do not fit, or on the CPU indices; nothing is written.
            TypeError: a tensor is not of floating point, or an index not int32.
        """
        check_conv(x, weight, bias, conv_state, rows)
        functions = self._functions() if _fits(x, weight, bias, conv_state, rows) else Unavailable("not needed")
        if isinstance(functions, Unavailable):
            return portable_conv.causal_conv(x, weight, bias, conv_state, rows, silu=silu)
        if x.is_cpu:
            check_indices(rows, len(conv_state))
        activation = "silu" if silu else None
        bias = None if bias is None else bias.contiguous()
        if rows.single_tokens:
            states = read_states(conv_state, rows.initial_state)
            result = functions.update(x[: rows.num_tokens], states.mT, weight, bias, activation)
            store_states(conv_state, rows.chunk_state[: rows.num_rows].long(), states)
        else:
            line, place = _line_up(x[: rows.num_tokens], conv_state, rows)
            whole = functions.whole(line.T[None], weight, bias, activation=activation)
            starts, tokens = rows.query_start_loc, torch.arange(rows.num_tokens, device=x.device)
            outside = (tokens < starts[0]) | (tokens >= starts[-1])
            result = whole[0].T.index_select(0, place).masked_fill_(outside[:, None], 0)
            _store_windows(line, conv_state, rows)
        return result if len(result) == len(x) else F.pad(result, (0, 0, 0, len(x) - len(result)))


def _fits(x: Tensor, weight: Tensor, bias: Tensor | None, conv_state: Tensor, rows: StateRows) -> bool:
    """Whether causal-conv1d takes this batch."""
    return (
        rows.num_tokens > 0
        and rows.max_chunks > 0
        and weight.shape[1] in WIDTHS
        and weight.shape[0] % CHANNELS == 0
        and x.dtype == conv_state.dtype
        and (bias is None or bias.dtype == weight.dtype)
        and x.dtype in DTYPES
        and weight.dtype in DTYPES
    )


def _line_up(x: Tensor, conv_state: Tensor, rows: StateRows) -> tuple[Tensor, Tensor]:
    """All rows in one line, each behind the inputs from its state, and each token's place in it ``[num_tokens]``."""
    kept, starts = conv_state.shape[1], rows.query_start_loc.long()
    tokens = torch.arange(len(x), device=x.device)
    # Tokens before the first row and behind the last one have places too, so that no shape depends on the rows.
    row = (torch.searchsorted(starts, tokens, right=True) - 1).clamp_(max=rows.num_rows - 1)
    place = tokens + (row + 1) * kept
    line = x.new_zeros(len(x) + rows.num_rows * kept, x.shape[1])
    line.index_copy_(0, place, x)
    before = starts[:-1] + torch.arange(rows.num_rows, device=x.device) * kept
    states = read_states(conv_state, rows.initial_state).flatten(0, 1)
    line.index_copy_(0, _spread(before, kept), states)
    return line, place


def _store_windows(line: Tensor, conv_state: Tensor, rows: StateRows) -> None:
    """Store the inputs before the end of each chunk that has a state to store."""
    kept = conv_state.shape[1]
    chunks = torch.arange(len(rows.chunk_state), device=line.device)
    row = (torch.searchsorted(rows.row_chunks.long(), chunks, right=True) - 1).clamp_(0, rows.num_rows - 1)
    ends = (rows.chunk_start_loc[1:].long() + row * kept).clamp_(0, len(line) - kept)
    windows = line.index_select(0, _spread(ends, kept)).view(len(chunks), kept, -1)
    store_states(conv_state, last_stores(rows, len(conv_state)), windows)


def _spread(places: Tensor, count: int) -> Tensor:
    """``count`` places from each one, flat."""
    return (places[:, None] + torch.arange(count, device=places.device)).flatten()
