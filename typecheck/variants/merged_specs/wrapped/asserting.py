"""Layers of two kinds, full and latent, get one spec.

Right: they hold the same blocks, so that their specs can be wrapped, and the planning back end takes that.
"""

from __future__ import annotations

from genericbuilders.specs import UniformTypeKVCacheSpecs
from typecheck.designs.asserting.attention import FlashInferBackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.layers import Attention
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, MLA_SPEC, two_requests


def run() -> object:
    wrapped = UniformTypeKVCacheSpecs.from_specs({"full": FULL_SPEC, "latent": MLA_SPEC})
    if wrapped is None:
        raise LookupError("the layers cannot share a block table")
    group = AttentionGroup(FlashInferBackend, wrapped, list(wrapped.kv_cache_specs), CONFIG, CPU)
    step = group.build(two_requests())
    return [Attention(name, FlashInferBackend).forward(step).sum().item() for name in group.layer_names]
