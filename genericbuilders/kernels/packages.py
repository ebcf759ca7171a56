"""Kernels that other packages bring for CUDA: found without importing them, imported when first called."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import torch
from typing_extensions import TypeVar

from genericbuilders.kernels.native import Unavailable

__all__ = ["DTYPES", "find_package", "imported_once"]

# What the packages' kernels take; all of them sum in float32.
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

F = TypeVar("F")


def find_package(
    module: str, distribution: str, least: tuple[int, int], extension: str | None = None
) -> str | Unavailable:
    """The version of an installed package, or why it cannot be used; nothing is imported.

    Args:
        module: what is imported.
        distribution: what is installed.
        least: the first version, major and minor, that can be used.
        extension: the compiled module without which the package cannot be imported.
    """
    for name in (module,) if extension is None else (module, extension):
        if find_spec(name) is None:
            return Unavailable(f"{distribution} is not installed: there is no module {name}")
    try:
        found = version(distribution)
    except PackageNotFoundError:
        return Unavailable(f"there is a module {module}, but no metadata of {distribution} that say its version")
    try:
        major, minor = (int(part) for part in found.split(".")[:2])
    except ValueError:
        return Unavailable(f"{distribution} is of version {found!r}, which does not begin with two numbers")
    if (major, minor) < least:
        return Unavailable(f"{distribution} is of version {found}; {least[0]}.{least[1]} is the first that can be used")
    return found


def imported_once(distribution: str, load: Callable[[], F]) -> Callable[[], F | Unavailable]:
    """A function that calls ``load`` when first called, and gives its result, or why there is none, ever after.

    A package that is installed but cannot be imported, as one compiled for another torch, is told of in one warning.
    """

    @functools.cache
    def loaded() -> F | Unavailable:
        try:
            return load()
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            reason = f"{distribution} is installed, but cannot be imported: {type(error).__name__}: {error}"
        warnings.warn(f"{reason}; the portable kernels run in its place", RuntimeWarning, stacklevel=3)
        return Unavailable(reason)

    return loaded
