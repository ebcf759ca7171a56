"""A helper places a drafter by any back end of full metadata on any spec; it is given the one for attention and a
state's spec.

At run time: BindError: adapter 'full' takes AttentionSpec, but layers ['drafter'] have a MambaSpec; choose the
adapter by the spec: registry.for_spec(spec)
"""

from __future__ import annotations

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import BackendAdapter, Group, Step
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata


def place_drafter(adapter: BackendAdapter[FullMetadata], spec: KVCacheSpec) -> Group:
    return adapter.bind(spec, [adapter.layer("drafter", HEADS)], CONFIG, CPU)


def run() -> object:
    group = place_drafter(FULL, STATE_SPEC)  # E
    step = Step()
    group.build(two_requests(), step)
    return step
