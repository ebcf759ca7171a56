"""A layer that shares another one's cache reads what was built for that one.

Right: both layers are of one back end and see the same blocks.
"""

from __future__ import annotations

from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.shared.batch import FULL_SPEC, HEADS, two_requests


def run() -> object:
    group, layer = place(FULL, FULL_SPEC)
    sharing = FULL.layer("sharing", HEADS)
    step = Step()
    group.build(two_requests(), step)
    step.put(sharing, step[layer])
    return Attention(sharing).forward(step).sum().item()
