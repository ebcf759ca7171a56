"""The worker counts the states of every builder among its parts, as if all of them were builders over states.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.covariant.attention import FULL
from typecheck.designs.covariant.core import AttentionMetadataBuilder
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.state import MAMBA2
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC


def state_tensors(parts: Sequence[object]) -> int:
    total: int = 0
    for part in parts:
        if isinstance(part, AttentionMetadataBuilder):
            total += len(part.kv_cache_spec.shapes)  # E
    return total


def run() -> object:
    mamba2, _ = place(MAMBA2, STATE_SPEC)
    full, _ = place(FULL, FULL_SPEC)
    return state_tensors([mamba2.builder, full.builder])
