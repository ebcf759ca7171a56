"""A planning builder, made for layers that differ, is given the spec of layers that do not.

Right: that spec is a member of its union.
"""

from __future__ import annotations

from typecheck.designs.generic.attention import FLASHINFER
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, WINDOW_SPEC, two_requests


def run() -> object:
    layer = FLASHINFER.layer("attn", HEADS)
    group = FLASHINFER.bind(WINDOW_SPEC, [layer], CONFIG, CPU)
    return group.builder.build(0, two_requests()).num_kv_heads
