"""Without the hybrid manager, the runner promotes every layer's spec to full attention, the state layer's as well.

At run time: TypeError: MambaSpec has no form that keeps all blocks
"""

from __future__ import annotations

from genericbuilders.specs import promote_to_full
from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.state import LinearBackend
from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, WINDOW_SPEC


def run() -> object:
    window = AttentionGroup(FullBackend, promote_to_full(WINDOW_SPEC), ["attn"], CONFIG, CPU)
    states = AttentionGroup(LinearBackend, promote_to_full(STATE_SPEC), ["mixer"], CONFIG, CPU)  # E
    return window, states
