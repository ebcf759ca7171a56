"""The drafter makes a full-attention builder from the spec of its state-space layer.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typecheck.designs.asserting.attention import FullBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests


def run() -> object:
    builder = FullBuilder(STATE_SPEC, ["draft.attn"], CONFIG, CPU)  # E
    return builder.build(0, two_requests())
