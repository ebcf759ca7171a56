"""The layers' specs were made before latent attention was chosen: its builder gets a plain full one.

At run time: wrong: 8; right: 24
"""

from __future__ import annotations

from typecheck.designs.asserting.attention import MLABuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests


def run() -> object:
    builder = MLABuilder(FULL_SPEC, ["layers.0.self_attn"], CONFIG, CPU)  # E
    return builder.build(0, two_requests()).latent_size
