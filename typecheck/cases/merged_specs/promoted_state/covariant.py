"""Without the hybrid manager, the runner promotes every layer's spec to full attention, the state layer's as well.

At run time: TypeError: MambaSpec has no form that keeps all blocks
"""

from __future__ import annotations

from genericbuilders.specs import promote_to_full
from typecheck.designs.covariant.attention import FULL
from typecheck.designs.covariant.state import LINEAR
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, STATE_SPEC, WINDOW_SPEC


def run() -> object:
    window = FULL.bind(promote_to_full(WINDOW_SPEC), [FULL.layer("attn", HEADS)], CONFIG, CPU)
    states = LINEAR.bind(promote_to_full(STATE_SPEC), [LINEAR.layer("mixer", HEADS)], CONFIG, CPU)  # E
    return window, states
