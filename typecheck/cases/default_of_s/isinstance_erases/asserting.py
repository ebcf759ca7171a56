"""The worker counts the states of every builder among its parts, as if all of them were builders over states.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.core import AttentionMetadataBuilder
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.state import Mamba2Backend
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC


def state_tensors(parts: Sequence[object]) -> int:
    total: int = 0
    for part in parts:
        if isinstance(part, AttentionMetadataBuilder):
            total += len(part.kv_cache_spec.shapes)  # E
    return total


def run() -> object:
    groups = [place(Mamba2Backend, STATE_SPEC), place(FullBackend, FULL_SPEC)]
    parts: list[object] = [group.builder for group in groups]
    return state_tensors(parts)
