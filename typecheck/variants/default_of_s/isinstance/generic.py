"""A tool picks the builders out of a list of any objects and reads their specs.

Right: whatever their types are, they have a spec, and it has a page size.
"""

from __future__ import annotations

from collections.abc import Sequence

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import AttentionMetadataBuilder
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC


def page_bytes(things: Sequence[object]) -> list[int]:
    sizes: list[int] = []
    for thing in things:
        if isinstance(thing, AttentionMetadataBuilder):
            spec: KVCacheSpec = thing.kv_cache_spec
            sizes.append(spec.page_size_bytes)
    return sizes


def run() -> object:
    full, _ = place(FULL, FULL_SPEC)
    mamba2, _ = place(MAMBA2, STATE_SPEC)
    return page_bytes(["no builder", full.builder, mamba2.builder])
