"""Mamba's recurrence by mamba-ssm's Triton kernel, for batches of single tokens.

Its ``selective_scan_fn`` takes neither initial states nor rows of different lengths, so prefills run by the portable
kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.packages import DTYPES, find_package
from genericbuilders.kernels.state import portable_selective
from genericbuilders.kernels.state.portable_conv import read_states, store_states
from genericbuilders.kernels.state.rows import StateRows
from genericbuilders.kernels.state.validation import check_indices, check_selective

__all__ = ["MambaSsmKernels", "SelectiveStateUpdate", "find_mamba_ssm", "load_mamba_ssm"]


class SelectiveStateUpdate(Protocol):
    """``selective_state_update``, as far as it is used here."""

    def __call__(
        self,
        state: Tensor,
        x: Tensor,
        dt: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        *,
        D: Tensor,
        dt_bias: Tensor,
        dt_softplus: bool,
    ) -> Tensor:
        """One token for each state: ``[num_rows, dim]`` of ``x``'s dtype.

        Args:
            state: ``[num_rows, dim, state_size]``; changed.
            x: ``[num_rows, dim]``.
            dt: ``[num_rows, dim]``.
            A: ``[dim, state_size]``.
            B: ``[num_rows, state_size]``.
            C: ``[num_rows, state_size]``.
            D: ``[dim]``. The package takes ``None`` by its signature, but fails on it.
            dt_bias: ``[dim]``; likewise.
            dt_softplus: whether softplus is still to be applied to ``dt``.
        """
        ...


def find_mamba_ssm() -> str | Unavailable:
    """The version of mamba-ssm, or why it cannot be used; it is not imported."""
    return find_package("mamba_ssm", "mamba-ssm", (2, 3), "selective_scan_cuda")


def load_mamba_ssm() -> SelectiveStateUpdate:
    """Import mamba-ssm.

    Raises:
        ImportError: that fails. Its extension, Triton and torch may raise errors of other kinds.
    """
    update: SelectiveStateUpdate = import_module("mamba_ssm.ops.triton.selective_state_update").selective_state_update
    return update


class MambaSsmKernels:
    """The selective scan with the signature of `genericbuilders.kernels.state.protocols.SelectiveScan`.

    Args:
        update: gives mamba-ssm's function, or why there is none; called when it is first needed.
    """

    def __init__(self, update: Callable[[], SelectiveStateUpdate | Unavailable]) -> None:
        self._update = update

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
        """Run the recurrence: single tokens in float32 or half precision by mamba-ssm, all else by the portable kernel.

        ``x`` may have more tokens than the rows; their output is zero.

        Raises:
            ValueError: axes or devices that do not fit, or on the CPU indices; nothing is written.
            TypeError: a tensor is not of floating point, or an index not int32.
        """
        check_selective(x, dt, a, b, c, d, ssm_state, rows)
        given = [tensor for tensor in (x, dt, a, b, c, d, ssm_state) if tensor is not None]
        fits = rows.single_tokens and x.numel() and all(tensor.dtype in DTYPES for tensor in given)
        update = self._update() if fits else Unavailable("not needed")
        if isinstance(update, Unavailable):
            return portable_selective.selective_scan(x, dt, a, b, c, d, ssm_state, rows)
        if ssm_state.is_cpu:
            check_indices(rows, len(ssm_state))
        count = rows.num_tokens
        none = torch.zeros(1, device=x.device).expand(x.shape[1])
        states = read_states(ssm_state, rows.initial_state).float()
        # Where all strides of a matrix are 0, the kernel takes it for one number.
        out = update(
            states,
            x[:count],
            dt[:count],
            a.contiguous(),
            b[:count],
            c[:count],
            D=none if d is None else d,
            dt_bias=none,
            dt_softplus=False,
        )
        store_states(ssm_state, rows.chunk_state[: rows.num_rows].long(), states)
        return out if len(out) == len(x) else F.pad(out, (0, 0, 0, len(x) - len(out)))
