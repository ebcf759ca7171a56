"""Which state-space kernels to run: by device and dtype, or by name."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from genericbuilders.kernels.native import Unavailable, native_library
from genericbuilders.kernels.native.state_conv import NativeConvKernels
from genericbuilders.kernels.native.state_scan import NativeScanKernels
from genericbuilders.kernels.select import KERNEL_NAMES
from genericbuilders.kernels.state import portable_conv, portable_scan, portable_selective, reference
from genericbuilders.kernels.state.protocols import CausalConv, DecayScan, DeltaScan, SelectiveScan

__all__ = ["StateKernels", "find_state_kernels", "select_state_kernels"]


@dataclass(frozen=True)
class StateKernels:
    """One implementation of all state-space kernels.

    Attributes:
        name: one of `genericbuilders.kernels.select.KERNEL_NAMES`.
        causal_conv: depthwise causal convolution.
        selective_scan: Mamba's recurrence.
        decay_scan: Mamba-2's and lightning attention's recurrence.
        delta_scan: the gated delta rule.
    """

    name: str
    causal_conv: CausalConv
    selective_scan: SelectiveScan
    decay_scan: DecayScan
    delta_scan: DeltaScan


def find_state_kernels(name: str, device: torch.device, dtypes: Sequence[torch.dtype]) -> StateKernels | Unavailable:
    """The implementation called ``name``, or why it cannot run on this device with states of these dtypes.

    Raises:
        ValueError: there is no such implementation.
    """
    if name == "reference":
        return StateKernels(
            name, reference.causal_conv, reference.selective_scan, reference.decay_scan, reference.delta_scan
        )
    if name == "portable":
        return StateKernels(
            name,
            portable_conv.causal_conv,
            portable_selective.selective_scan,
            portable_scan.decay_scan,
            portable_scan.delta_scan,
        )
    if name != "native":
        raise ValueError(f"there are no kernels called {name!r}; there are {', '.join(KERNEL_NAMES)}")
    if device.type != "cpu":
        return Unavailable(f"the compiled kernels run on the CPU, not on {device}")
    narrow = [str(dtype) for dtype in dtypes if dtype != torch.float32]
    if narrow:
        return Unavailable(f"the compiled state-space kernels keep states in float32, not {', '.join(narrow)}")
    library = native_library()
    if isinstance(library, Unavailable):
        return library
    return _compiled(library)


def select_state_kernels(device: torch.device, dtypes: Sequence[torch.dtype], name: str | None = None) -> StateKernels:
    """The fastest kernels for a device and the dtypes of a state's tensors, or those called ``name``.

    Raises:
        ValueError: there are no kernels of that name, or they cannot run here (with the reason).
    """
    if name is None:
        found = find_state_kernels("native", device, dtypes)
        return found if isinstance(found, StateKernels) else select_state_kernels(device, dtypes, "portable")
    found = find_state_kernels(name, device, dtypes)
    if isinstance(found, Unavailable):
        raise ValueError(f"the kernels {name!r} are not available: {found.reason}")
    return found


@functools.cache
def _compiled(library: Path) -> StateKernels:
    conv, scan = NativeConvKernels(library), NativeScanKernels(library)
    return StateKernels("native", conv.causal_conv, conv.selective_scan, scan.decay_scan, scan.delta_scan)
