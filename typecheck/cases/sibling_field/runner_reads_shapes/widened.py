"""To allocate the states' tensors, the runner counts every group's shapes, the attention groups' too.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.state import GDNBackend


def num_state_tensors(groups: Sequence[AttentionGroup]) -> int:
    return sum(len(group.kv_cache_spec.shapes) for group in groups)  # E


def run() -> object:
    return num_state_tensors([place(GDNBackend, STATE_SPEC), place(FullBackend, FULL_SPEC)])
