"""A Mamba2 builder is given the spec of a state, outside any runner, as a test of the back end does.

Right: it is the very spec that this builder is for.
"""

from __future__ import annotations

from typecheck.designs.covariant.state import MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, STATE_SPEC, two_requests


def run() -> object:
    layer = MAMBA2.layer("mixer", HEADS)
    group = MAMBA2.bind(STATE_SPEC, [layer], CONFIG, CPU)
    return group.builder.build(0, two_requests()).num_states
