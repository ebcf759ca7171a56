"""The runner sizes all groups by a function; the function given works on Mamba2's only.

At run time: AttributeError: 'UniformTypeKVCacheSpecs' object has no attribute 'shapes'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from genericbuilders.specs import MambaSpec
from typecheck.designs.generic.attention import FLASHINFER
from typecheck.designs.generic.core import BoundGroup, Group
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import STATE_SPEC, UNIFORM_SPEC
from typecheck.designs.shared.metadata import Mamba2Metadata


def total(groups: Sequence[Group], size: Callable[[Group], int]) -> int:
    return sum(size(group) for group in groups)


def num_states(group: BoundGroup[Mamba2Metadata, MambaSpec]) -> int:
    return len(group.spec.shapes)


def run() -> object:
    mamba2, _ = place(MAMBA2, STATE_SPEC)
    flashinfer, _ = place(FLASHINFER, UNIFORM_SPEC)
    return total([mamba2, flashinfer], num_states)  # E
