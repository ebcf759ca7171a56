"""A runner sums the heads of the planned groups, and reads them from the spec that may be a wrapper.

At run time: AttributeError: 'UniformTypeKVCacheSpecs' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.generic.attention import FLASHINFER, FULL
from typecheck.designs.generic.core import Group
from typecheck.designs.generic.layers import place
from typecheck.designs.shared.batch import FULL_SPEC, UNIFORM_SPEC


def planned_heads(groups: Sequence[Group]) -> int:
    heads: list[int] = []
    for group in groups:
        if FLASHINFER.owns(group):
            heads.append(group.spec.num_kv_heads)  # E
    return sum(heads)


def run() -> object:
    full, _ = place(FULL, FULL_SPEC)
    flashinfer, _ = place(FLASHINFER, UNIFORM_SPEC)
    return planned_heads([full, flashinfer])
