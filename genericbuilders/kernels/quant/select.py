"""Which attention over quantised caches to run: by device and dtype, or by name."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from genericbuilders.kernels.native import Unavailable, native_library
from genericbuilders.kernels.native.checks import DTYPES
from genericbuilders.kernels.native.quantised import NativeQuantisedAttention
from genericbuilders.kernels.quant import portable, reference
from genericbuilders.kernels.quant.protocols import QuantisedAttention
from genericbuilders.kernels.select import KERNEL_NAMES

__all__ = ["find_quantised_attention", "select_quantised_attention"]


def find_quantised_attention(name: str, device: torch.device, dtype: torch.dtype) -> QuantisedAttention | Unavailable:
    """The implementation called ``name``, or why it cannot run on this device with queries of this dtype.

    Raises:
        ValueError: there is no such implementation.
    """
    if name == "reference":
        return reference.paged_attention
    if name == "portable":
        return portable.paged_attention
    if name != "native":
        raise ValueError(f"there are no kernels called {name!r}; there are {', '.join(KERNEL_NAMES)}")
    if device.type != "cpu":
        return Unavailable(f"the compiled kernels run on the CPU, not on {device}")
    if dtype not in DTYPES:
        return Unavailable(f"the compiled kernels take {', '.join(map(str, DTYPES))}, not {dtype}")
    path = native_library()
    return path if isinstance(path, Unavailable) else _compiled(path)


def select_quantised_attention(device: torch.device, dtype: torch.dtype, name: str | None = None) -> QuantisedAttention:
    """The fastest attention for a device and a dtype of queries, or that called ``name``.

    Args:
        device: where cache and queries are.
        dtype: of the queries.
        name: ``native``, ``portable`` or ``reference``; ``None`` chooses.

    Raises:
        ValueError: there is none of that name, or it cannot run here (with the reason).
    """
    found = find_quantised_attention("native" if name is None else name, device, dtype)
    if isinstance(found, Unavailable):
        if name is None:
            return portable.paged_attention
        raise ValueError(f"the kernels {name!r} are not available: {found.reason}")
    return found


@functools.cache
def _compiled(library: Path) -> QuantisedAttention:
    return NativeQuantisedAttention(library).paged_attention
