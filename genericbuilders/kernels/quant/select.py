"""Which kernels of quantised caches to run: by device and dtype, or by name."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import torch

from genericbuilders.kernels.native import Unavailable, native_library
from genericbuilders.kernels.native.checks import DTYPES
from genericbuilders.kernels.native.quantised import NativeQuantisedKernels
from genericbuilders.kernels.quant import portable, reference
from genericbuilders.kernels.quant.protocols import QuantisedAttention, WriteSlots
from genericbuilders.kernels.quant.slots import write_slots

__all__ = ["QuantisedKernels", "find_quantised_kernels", "select_quantised_kernels"]

# Fastest first.
QUANTISED_KERNEL_NAMES = ("native", "portable", "reference")


@dataclass(frozen=True)
class QuantisedKernels:
    """One implementation of what a quantised cache needs.

    Attributes:
        name: ``native``, ``portable`` or ``reference``.
        write_slots: quantise and store keys and values.
        paged_attention: attention over what is stored.
    """

    name: str
    write_slots: WriteSlots
    paged_attention: QuantisedAttention


def find_quantised_kernels(name: str, device: torch.device, dtype: torch.dtype) -> QuantisedKernels | Unavailable:
    """The implementation called ``name``, or why it cannot run on this device with activations of this dtype.

    Raises:
        ValueError: there is no such implementation.
    """
    if name == "reference":
        return QuantisedKernels(name, write_slots, reference.paged_attention)
    if name == "portable":
        return QuantisedKernels(name, write_slots, portable.paged_attention)
    if name != "native":
        raise ValueError(f"there are no kernels called {name!r}; there are {', '.join(QUANTISED_KERNEL_NAMES)}")
    if device.type != "cpu":
        return Unavailable(f"the compiled kernels run on the CPU, not on {device}")
    if dtype not in DTYPES:
        return Unavailable(f"the compiled kernels take {', '.join(map(str, DTYPES))}, not {dtype}")
    library = native_library()
    return library if isinstance(library, Unavailable) else _compiled(library)


def select_quantised_kernels(device: torch.device, dtype: torch.dtype, name: str | None = None) -> QuantisedKernels:
    """The fastest kernels for a device and a dtype of activations, or those called ``name``.

    Args:
        device: where the cache and the activations are.
        dtype: of the activations.
        name: one of those of `QuantisedKernels`; ``None`` chooses.

    Raises:
        ValueError: there are no kernels of that name, or they cannot run here (with the reason).
    """
    if name is None:
        found = find_quantised_kernels("native", device, dtype)
        return found if isinstance(found, QuantisedKernels) else select_quantised_kernels(device, dtype, "portable")
    found = find_quantised_kernels(name, device, dtype)
    if isinstance(found, Unavailable):
        raise ValueError(f"the kernels {name!r} are not available: {found.reason}")
    return found


@functools.cache
def _compiled(library: Path) -> QuantisedKernels:
    kernels = NativeQuantisedKernels(library)
    return QuantisedKernels("native", kernels.write_slots, kernels.paged_attention)
