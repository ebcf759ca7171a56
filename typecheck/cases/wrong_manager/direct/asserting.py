"""The runner makes the manager of states for an attention layer.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'num_speculative_blocks'
"""

from __future__ import annotations

from typecheck.designs.asserting.managers import MambaManager
from typecheck.designs.shared.batch import FULL_SPEC, new_pool


def run() -> object:
    manager = MambaManager(FULL_SPEC, new_pool())  # E
    return manager.blocks_for_longest(64)
