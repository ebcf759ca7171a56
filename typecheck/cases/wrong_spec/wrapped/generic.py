"""The runner forgets to unwrap: layers that differ share a wrapper spec, and the full back end gets that.

At run time: BindError: adapter 'full' takes AttentionSpec, but layers ['wide', 'narrow'] have a UniformTypeKVCacheSpecs
"""

from __future__ import annotations

from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import Step
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, UNIFORM_SPEC, two_requests


def run() -> object:
    layers = [FULL.layer(name, HEADS) for name in UNIFORM_SPEC.kv_cache_specs]
    group = FULL.bind(UNIFORM_SPEC, layers, CONFIG, CPU)  # E
    step = Step()
    group.build(two_requests(), step)
    return group.metadata(step).num_kv_heads
