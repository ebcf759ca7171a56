"""A planning builder, made for layers that differ, is given the spec of layers that do not.

Right: that spec is a member of its union.
"""

from __future__ import annotations

from typecheck.designs.shared.batch import CONFIG, CPU, WINDOW_SPEC, two_requests
from typecheck.designs.widened.attention import FlashInferBuilder


def run() -> object:
    builder = FlashInferBuilder(WINDOW_SPEC, ["attn"], CONFIG, CPU)
    return builder.build(0, two_requests()).num_kv_heads
