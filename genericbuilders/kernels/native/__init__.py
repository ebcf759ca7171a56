"""Kernels in C++ for CPUs, compiled at first use; without a compiler the answer says why there are none."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

from genericbuilders.kernels.native.build import BuildError, build_library
from genericbuilders.kernels.native.calls import NativeKernels

__all__ = ["NativeKernels", "Unavailable", "native_kernels", "native_library"]


@dataclass(frozen=True)
class Unavailable:
    """Why an implementation cannot be used.

    Attributes:
        reason: for people; what is missing, and how to mend it.
    """

    reason: str


def native_kernels() -> NativeKernels | Unavailable:
    """The compiled kernels, or why there are none.

    The first call in a process loads them, the first on a machine compiles them (some seconds) into the user's
    cache folder. ``GENERICBUILDERS_NATIVE=0`` in the environment switches them off.
    """
    if os.environ.get("GENERICBUILDERS_NATIVE", "1") == "0":
        return Unavailable("switched off by GENERICBUILDERS_NATIVE=0")
    return _load()


def native_library() -> Path | Unavailable:
    """The file with the compiled kernels, or why there is none; compiled and switched off as `native_kernels` says."""
    found = native_kernels()
    return found.path if isinstance(found, NativeKernels) else found


@functools.cache
def _load() -> NativeKernels | Unavailable:
    try:
        return NativeKernels(build_library())
    except (BuildError, OSError) as error:
        return Unavailable(str(error))
