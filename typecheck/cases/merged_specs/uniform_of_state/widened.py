"""The runner has two wrappers of layers that share a block table, one of attention and one of states, and plans over
the states.

At run time: wrong: (); right: (2, 1)
"""

from __future__ import annotations

from genericbuilders.specs import UniformTypeKVCacheSpecs
from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, UNIFORM_SPEC, two_requests
from typecheck.designs.shared.metadata import FlashInferMetadata
from typecheck.designs.widened.attention import FlashInferBackend
from typecheck.designs.widened.core import AttentionGroup


def run() -> object:
    wrapped = {
        "attention": UNIFORM_SPEC,
        "states": UniformTypeKVCacheSpecs(4, {"wide": STATE_SPEC, "narrow": STATE_SPEC}),
    }
    group = AttentionGroup(FlashInferBackend, wrapped["states"], ["wide", "narrow"], CONFIG, CPU)  # E
    metadata = group.build(two_requests())["wide"]
    assert isinstance(metadata, FlashInferMetadata)
    return metadata.num_kv_heads
