"""A runner's own `TypeIs` tells states from other specs.

Right: it is true exactly for the specs of that class.
"""

from __future__ import annotations

from typing_extensions import TypeIs

from genericbuilders.specs import KVCacheSpec, MambaSpec
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.state import Mamba2Backend


def is_state(spec: KVCacheSpec) -> TypeIs[MambaSpec]:
    return isinstance(spec, MambaSpec)


def width(spec: KVCacheSpec) -> int:
    if is_state(spec):
        return len(spec.shapes)
    return spec.page_size_bytes // spec.block_size


def run() -> object:
    groups = [place(Mamba2Backend, STATE_SPEC), place(FullBackend, FULL_SPEC)]
    return [width(group.kv_cache_spec) for group in groups]
