"""A Mamba2 builder is given the spec of a state, outside any runner, as a test of the back end does.

Right: it is the very spec that this builder is for.
"""

from __future__ import annotations

from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests
from typecheck.designs.widened.state import Mamba2Builder


def run() -> object:
    builder = Mamba2Builder(STATE_SPEC, ["mixer"], CONFIG, CPU)
    return builder.build(0, two_requests()).num_states
