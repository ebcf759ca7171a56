"""A helper places a drafter by any back end of full metadata on any spec; it is given the one for attention and a
state's spec.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.core import AttentionBackend, AttentionGroup
from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests


def place_drafter(backend: type[AttentionBackend], spec: KVCacheSpec) -> AttentionGroup:
    return AttentionGroup(backend, spec, ["drafter"], CONFIG, CPU)


def run() -> object:
    group = place_drafter(FullBackend, STATE_SPEC)  # E
    return group.build(two_requests())
