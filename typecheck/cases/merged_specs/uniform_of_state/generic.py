"""The runner has two wrappers of layers that share a block table, one of attention and one of states, and plans over
the states.

At run time: wrong: (); right: (2, 1)
"""

from __future__ import annotations

from genericbuilders.specs import UniformTypeKVCacheSpecs
from typecheck.designs.generic.attention import FLASHINFER
from typecheck.designs.generic.core import Step
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, STATE_SPEC, UNIFORM_SPEC, two_requests


def run() -> object:
    wrapped = {
        "attention": UNIFORM_SPEC,
        "states": UniformTypeKVCacheSpecs(4, {"wide": STATE_SPEC, "narrow": STATE_SPEC}),
    }
    layers = [FLASHINFER.layer(name, HEADS) for name in ("wide", "narrow")]
    group = FLASHINFER.bind(wrapped["states"], layers, CONFIG, CPU)  # E
    step = Step()
    group.build(two_requests(), step)
    return group.metadata(step).num_kv_heads
