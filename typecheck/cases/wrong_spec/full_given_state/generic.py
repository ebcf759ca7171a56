"""The drafter makes a full-attention builder from the spec of its state-space layer.

At run time: BindError: adapter 'full' takes AttentionSpec
"""

from __future__ import annotations

from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import Step
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, STATE_SPEC, two_requests


def run() -> object:
    group = FULL.bind(STATE_SPEC, [FULL.layer("draft.attn", HEADS)], CONFIG, CPU)  # E
    step = Step()
    group.build(two_requests(), step)
    return group.metadata(step)
