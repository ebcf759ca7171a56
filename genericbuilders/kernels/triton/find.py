"""Whether Triton can be used here, and its kernels, made when first asked for."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

import torch

from genericbuilders.kernels.native import Unavailable
from genericbuilders.kernels.packages import find_package, imported_once

__all__ = ["Kernel", "TritonKernels", "find_triton", "installed_triton", "interpreted", "triton_kernels"]


class Kernel(Protocol):
    """A kernel: ``kernel[grid](*arguments, **settings)`` runs it."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
        """The kernel with as many programs along each axis."""
        ...


@dataclass(frozen=True)
class TritonKernels:
    """The kernels of `genericbuilders.kernels.triton.decode` and `genericbuilders.kernels.triton.prefill`.

    Attributes:
        attend_splits: decodes over runs of keys.
        merge_splits: the runs' results merged.
        attend_rows: rows of several new tokens.
    """

    attend_splits: Kernel
    merge_splits: Kernel
    attend_rows: Kernel


def interpreted() -> bool:
    """Whether Triton is told to interpret kernels, which then run on the CPU; it reads this when a kernel is made."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "yes", "on", "y")


def find_triton(device: torch.device) -> str | Unavailable:
    """The version of Triton, or why its kernels cannot run on a device; it is not imported."""
    if device.type != "cuda" and not (device.type == "cpu" and interpreted()):
        return Unavailable(f"Triton's kernels run on CUDA devices, not on {device}")
    return installed_triton()


@functools.cache
def installed_triton() -> str | Unavailable:
    """The version of Triton that is installed, or why there is none to be used; looked for once."""
    return find_package("triton", "triton", (3, 0))


@functools.cache
def triton_kernels() -> TritonKernels | Unavailable:
    """The kernels, made once, or why they cannot be."""
    return imported_once("triton", _load)()


def _load() -> TritonKernels:
    decode = import_module("genericbuilders.kernels.triton.decode")
    prefill = import_module("genericbuilders.kernels.triton.prefill")
    return TritonKernels(decode.attend_splits, decode.merge_splits, prefill.attend_rows)
