"""A function chooses between two builders; its caller reads the metadata as if it were always the first one's.

At run time: AttributeError: 'GDNMetadata' object has no attribute 'num_states'
"""

from __future__ import annotations

from typecheck.designs.generic.layers import place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.generic.state import GDN, MAMBA2
from typecheck.designs.shared.batch import STATE_SPEC, two_requests


def run() -> object:
    chunked = STATE_SPEC.num_speculative_blocks > 0
    group = place(MAMBA2, STATE_SPEC)[0] if chunked else place(GDN, STATE_SPEC)[0]
    step = Runner([group]).build(two_requests())
    return group.metadata(step).num_states  # E
