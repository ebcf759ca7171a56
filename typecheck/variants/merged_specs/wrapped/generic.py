"""Layers of two kinds, full and latent, get one spec.

Right: they hold the same blocks, so that their specs can be wrapped, and the planning back end takes that.
"""

from __future__ import annotations

from genericbuilders.specs import UniformTypeKVCacheSpecs
from typecheck.designs.generic.attention import FLASHINFER
from typecheck.designs.generic.core import Step
from typecheck.designs.generic.layers import Attention
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, MLA_SPEC, two_requests


def run() -> object:
    wrapped = UniformTypeKVCacheSpecs.from_specs({"full": FULL_SPEC, "latent": MLA_SPEC})
    if wrapped is None:
        raise LookupError("the layers cannot share a block table")
    layers = [FLASHINFER.layer(name, HEADS) for name in wrapped.kv_cache_specs]
    group = FLASHINFER.bind(wrapped, layers, CONFIG, CPU)
    step = Step()
    group.build(two_requests(), step)
    return [Attention(layer).forward(step).sum().item() for layer in layers]
