"""The runner wants the states of its groups, and takes each group's own spec for a state's.

At run time: AttributeError: 'MLAAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.covariant.attention import MLA
from typecheck.designs.covariant.core import BoundGroup, Group
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.state import GDN
from typecheck.designs.shared.batch import MLA_SPEC, STATE_SPEC


def state_tensors(groups: Sequence[Group]) -> int:
    total: int = 0
    for group in groups:
        if isinstance(group, BoundGroup):
            total += len(group.spec.shapes)  # E
    return total


def run() -> object:
    gdn, _ = place(GDN, STATE_SPEC)
    mla, _ = place(MLA, MLA_SPEC)
    return state_tensors([gdn, mla])
