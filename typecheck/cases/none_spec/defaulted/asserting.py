"""To please the checker about layers without a spec, the author writes `or FULL_SPEC`, and an encoder-only layer gets a
cache.

At run time: wrong: 1024; right: 512
"""

from __future__ import annotations

from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, LAYER_SPECS


def run() -> object:
    groups: list[AttentionGroup] = []
    for name in ("full", "encoder"):
        spec = LAYER_SPECS[name] or FULL_SPEC  # E
        groups.append(AttentionGroup(FullBackend, spec, [name], CONFIG, CPU))
    return sum(group.kv_cache_spec.page_size_bytes for group in groups)
