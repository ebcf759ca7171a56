"""The layers' specs were made before latent attention was chosen: its builder gets a plain full one.

At run time: BindError: adapter 'mla' takes MLAAttentionSpec
"""

from __future__ import annotations

from typecheck.designs.generic.attention import MLA
from typecheck.designs.generic.core import Step
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, two_requests


def run() -> object:
    layer = MLA.layer("layers.0.self_attn", HEADS)
    group = MLA.bind(FULL_SPEC, [layer], CONFIG, CPU)  # E
    step = Step()
    group.build(two_requests(), step)
    return step[layer].latent_size
