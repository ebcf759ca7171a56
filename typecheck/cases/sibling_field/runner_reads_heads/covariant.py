"""To choose a head-parallel layout, the runner asks every group's builder for heads; some keep states.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.covariant.attention import FULL
from typecheck.designs.covariant.core import Group
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.state import LINEAR
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC


def most_heads(groups: Sequence[Group]) -> int:
    return max(group.kv_cache_spec.num_kv_heads for group in groups)  # E


def run() -> object:
    full, _ = place(FULL, FULL_SPEC)
    linear, _ = place(LINEAR, STATE_SPEC)
    return most_heads([full, linear])
