"""A runner sums the heads of the planned groups, and reads them from the spec that may be a wrapper.

At run time: AttributeError: 'UniformTypeKVCacheSpecs' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from collections.abc import Sequence

from genericbuilders.specs import AttentionSpec, UniformTypeKVCacheSpecs
from typecheck.designs.asserting.attention import FlashInferBackend, FullBackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.layers import place
from typecheck.designs.shared.batch import FULL_SPEC, UNIFORM_SPEC


def planned_heads(groups: Sequence[AttentionGroup]) -> int:
    heads: list[int] = []
    for group in groups:
        if group.backend is FlashInferBackend:
            spec = group.kv_cache_spec
            assert isinstance(spec, AttentionSpec | UniformTypeKVCacheSpecs)
            heads.append(spec.num_kv_heads)  # E
    return sum(heads)


def run() -> object:
    return planned_heads([place(FullBackend, FULL_SPEC), place(FlashInferBackend, UNIFORM_SPEC)])
