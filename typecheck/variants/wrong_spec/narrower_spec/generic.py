"""The full back end's builder, which takes any spec of keys and values, is given a latent layer's spec.

Right: `MLAAttentionSpec` is an `AttentionSpec`.
"""

from __future__ import annotations

from typecheck.designs.generic.attention import FULL
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, MLA_SPEC, two_requests


def run() -> object:
    layer = FULL.layer("attn", HEADS)
    group = FULL.bind(MLA_SPEC, [layer], CONFIG, CPU)
    return group.builder.build(0, two_requests()).num_kv_heads
