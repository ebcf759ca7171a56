"""The runner wants the states of its groups, and takes each group's own spec for a state's.

At run time: AttributeError: 'MLAAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.shared.batch import MLA_SPEC, STATE_SPEC
from typecheck.designs.widened.attention import MLABackend
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.state import GDNBackend


def state_tensors(groups: Sequence[AttentionGroup]) -> int:
    total: int = 0
    for group in groups:
        total += len(group.builder.kv_cache_spec.shapes)  # E
    return total


def run() -> object:
    return state_tensors([place(GDNBackend, STATE_SPEC), place(MLABackend, MLA_SPEC)])
