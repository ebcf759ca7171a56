"""The runner merges the specs of all layers of a hybrid model, which it has in one list.

At run time: SpecMergeError: KVCacheSpec.merge takes specs of one type that is a KVCacheSpec
"""

from __future__ import annotations

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, STATE_SPEC, two_requests
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.plugin import PagedTreeBackend


def one_group(specs: dict[str, KVCacheSpec]) -> AttentionGroup:
    merged = KVCacheSpec.merge(list(specs.values()))  # E
    return AttentionGroup(PagedTreeBackend, merged, list(specs), CONFIG, CPU)


def run() -> object:
    return one_group({"layers.0": FULL_SPEC, "layers.1": STATE_SPEC}).build(two_requests())
