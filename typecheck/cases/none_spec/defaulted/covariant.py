"""To please the checker about layers without a spec, the author writes `or FULL_SPEC`, and an encoder-only layer gets a
cache.

At run time: wrong: 1024; right: 512
"""

from __future__ import annotations

from typecheck.designs.covariant.attention import FULL
from typecheck.designs.covariant.core import Group
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, LAYER_SPECS


def run() -> object:
    groups: list[Group] = []
    for name in ("full", "encoder"):
        spec = LAYER_SPECS[name] or FULL_SPEC  # E
        groups.append(FULL.bind_any(spec, [FULL.layer(name, HEADS)], CONFIG, CPU))
    return sum(group.kv_cache_spec.page_size_bytes for group in groups)
