"""Which state-space kernels to run: by device and dtype, or by name."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from genericbuilders.kernels.native import Unavailable, native_library
from genericbuilders.kernels.native.state_conv import NativeConvKernels
from genericbuilders.kernels.native.state_scan import NativeScanKernels
from genericbuilders.kernels.packages import DTYPES, imported_once
from genericbuilders.kernels.state import portable_conv, portable_scan, portable_selective, reference
from genericbuilders.kernels.state.causal_conv1d import CausalConv1dKernels, find_causal_conv1d, load_causal_conv1d
from genericbuilders.kernels.state.fla import FlaScanKernels, find_fla, load_fla
from genericbuilders.kernels.state.mamba_ssm import MambaSsmKernels, find_mamba_ssm, load_mamba_ssm
from genericbuilders.kernels.state.protocols import CausalConv, DecayScan, DeltaScan, SelectiveScan

__all__ = [
    "STATE_DTYPES",
    "STATE_KERNEL_NAMES",
    "StateKernels",
    "find_state_kernels",
    "installed_kernels",
    "select_state_kernels",
]

# What states may be kept in; the portable kernels and the reference run with all of them.
STATE_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# Fastest first.
STATE_KERNEL_NAMES = ("installed", "native", "portable", "reference")


@dataclass(frozen=True)
class StateKernels:
    """One implementation of all state-space kernels.

    Attributes:
        name: one of `STATE_KERNEL_NAMES`.
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
    if name in ("portable", "reference"):
        lacking = [str(dtype) for dtype in dtypes if dtype not in STATE_DTYPES]
        if lacking:
            return Unavailable(f"they keep states in {', '.join(map(str, STATE_DTYPES))}, not {', '.join(lacking)}")
    if name == "reference":
        return StateKernels(
            name, reference.causal_conv, reference.selective_scan, reference.decay_scan, reference.delta_scan
        )
    if name == "portable":
        return _portable(name)
    if name == "installed":
        return _installed_on(device, dtypes)
    if name != "native":
        raise ValueError(f"there are no kernels called {name!r}; there are {', '.join(STATE_KERNEL_NAMES)}")
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
        found = find_state_kernels("installed" if device.type == "cuda" else "native", device, dtypes)
        return found if isinstance(found, StateKernels) else select_state_kernels(device, dtypes, "portable")
    found = find_state_kernels(name, device, dtypes)
    if isinstance(found, Unavailable):
        raise ValueError(f"the kernels {name!r} are not available: {found.reason}")
    return found


@functools.cache
def installed_kernels() -> StateKernels | Unavailable:
    """The kernels of those packages for CUDA that are installed, the portable ones beside them, or why there are none.

    They are looked for once, and imported when one of their kernels is first called.
    """
    fla, conv, selective = find_fla(), find_causal_conv1d(), find_mamba_ssm()
    if isinstance(fla, Unavailable) and isinstance(conv, Unavailable) and isinstance(selective, Unavailable):
        return Unavailable("; ".join(found.reason for found in (fla, conv, selective)))
    kernels = _portable("installed")
    if not isinstance(fla, Unavailable):
        scans = FlaScanKernels(imported_once("fla-core", load_fla))
        kernels = replace(kernels, decay_scan=scans.decay_scan, delta_scan=scans.delta_scan)
    if not isinstance(conv, Unavailable):
        convolve = CausalConv1dKernels(imported_once("causal-conv1d", load_causal_conv1d)).causal_conv
        kernels = replace(kernels, causal_conv=convolve)
    if not isinstance(selective, Unavailable):
        scan = MambaSsmKernels(imported_once("mamba-ssm", load_mamba_ssm)).selective_scan
        kernels = replace(kernels, selective_scan=scan)
    return kernels


def _installed_on(device: torch.device, dtypes: Sequence[torch.dtype]) -> StateKernels | Unavailable:
    if device.type != "cuda":
        return Unavailable(f"the kernels of other packages run on CUDA devices, not on {device}")
    wide = [str(dtype) for dtype in dtypes if dtype not in DTYPES]
    if wide:
        return Unavailable(f"the kernels of other packages take {', '.join(map(str, DTYPES))}, not {', '.join(wide)}")
    return installed_kernels()


def _portable(name: str) -> StateKernels:
    return StateKernels(
        name,
        portable_conv.causal_conv,
        portable_selective.selective_scan,
        portable_scan.decay_scan,
        portable_scan.delta_scan,
    )


@functools.cache
def _compiled(library: Path) -> StateKernels:
    conv, scan = NativeConvKernels(library), NativeScanKernels(library)
    return StateKernels("native", conv.causal_conv, conv.selective_scan, scan.decay_scan, scan.delta_scan)
