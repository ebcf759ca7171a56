"""A runner's own `TypeIs` tells states from other specs.

Right: it is true exactly for the specs of that class.
"""

from __future__ import annotations

from typing_extensions import TypeIs

from genericbuilders.specs import KVCacheSpec, MambaSpec
from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import Group
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC


def is_state(spec: KVCacheSpec) -> TypeIs[MambaSpec]:
    return isinstance(spec, MambaSpec)


def width(spec: KVCacheSpec) -> int:
    if is_state(spec):
        return len(spec.shapes)
    return spec.page_size_bytes // spec.block_size


def run() -> object:
    groups: list[Group] = [place(MAMBA2, STATE_SPEC)[0], place(FULL, FULL_SPEC)[0]]
    return [width(group.kv_cache_spec) for group in groups]
