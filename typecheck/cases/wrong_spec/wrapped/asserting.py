"""The runner forgets to unwrap: layers that differ share a wrapper spec, and the full back end gets that.

At run time: AttributeError: 'UniformTypeKVCacheSpecs' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typecheck.designs.asserting.attention import FullBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, UNIFORM_SPEC, two_requests


def run() -> object:
    builder = FullBuilder(UNIFORM_SPEC, list(UNIFORM_SPEC.kv_cache_specs), CONFIG, CPU)  # E
    return builder.build(0, two_requests()).num_kv_heads
