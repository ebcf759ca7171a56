"""The full back end's builder, which takes any spec of keys and values, is given a latent layer's spec.

Right: `MLAAttentionSpec` is an `AttentionSpec`.
"""

from __future__ import annotations

from typecheck.designs.shared.batch import CONFIG, CPU, MLA_SPEC, two_requests
from typecheck.designs.widened.attention import FullBuilder


def run() -> object:
    builder = FullBuilder(MLA_SPEC, ["attn"], CONFIG, CPU)
    return builder.build(0, two_requests()).num_kv_heads
