"""To allocate the states' tensors, the runner counts every group's shapes, the attention groups' too.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.covariant.attention import FULL
from typecheck.designs.covariant.core import Group
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.state import GDN
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC


def num_state_tensors(groups: Sequence[Group]) -> int:
    return sum(len(group.kv_cache_spec.shapes) for group in groups)  # E


def run() -> object:
    gdn, _ = place(GDN, STATE_SPEC)
    full, _ = place(FULL, FULL_SPEC)
    return num_state_tensors([gdn, full])
