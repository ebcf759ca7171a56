"""To choose a head-parallel layout, the runner asks every group's builder for heads; some keep states.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.state import LinearBackend
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC


def most_heads(groups: Sequence[AttentionGroup]) -> int:
    return max(group.builder.kv_cache_spec.num_kv_heads for group in groups)  # E


def run() -> object:
    return most_heads([place(FullBackend, FULL_SPEC), place(LinearBackend, STATE_SPEC)])
