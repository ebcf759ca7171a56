"""A tool picks the builders out of a list of any objects and reads their specs.

Right: whatever their types are, they have a spec, and it has a page size.
"""

from __future__ import annotations

from collections.abc import Sequence

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.core import AttentionMetadataBuilder
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.state import Mamba2Backend


def page_bytes(things: Sequence[object]) -> list[int]:
    sizes: list[int] = []
    for thing in things:
        if isinstance(thing, AttentionMetadataBuilder):
            spec: KVCacheSpec = thing.kv_cache_spec
            sizes.append(spec.page_size_bytes)
    return sizes


def run() -> object:
    groups = [place(FullBackend, FULL_SPEC), place(Mamba2Backend, STATE_SPEC)]
    return page_bytes(["no builder", *(group.builder for group in groups)])
