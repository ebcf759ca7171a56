"""The runner merges the specs of all layers of a hybrid model, which it has in one list.

At run time: SpecMergeError: KVCacheSpec.merge takes specs of one type that is a KVCacheSpec
"""

from __future__ import annotations

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.generic.core import Group
from typecheck.designs.generic.plugin import PAGED_TREE
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, STATE_SPEC


def one_group(specs: dict[str, KVCacheSpec]) -> Group:
    merged = KVCacheSpec.merge(list(specs.values()))  # E
    return PAGED_TREE.bind(merged, [PAGED_TREE.layer(name, HEADS) for name in specs], CONFIG, CPU)


def run() -> object:
    return one_group({"layers.0": FULL_SPEC, "layers.1": STATE_SPEC}).kv_cache_spec
