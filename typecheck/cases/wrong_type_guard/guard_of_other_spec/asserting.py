"""The runner sizes a workspace by key-value heads, and asks a back end for them whose layers have none.

At run time: AssertionError:
"""

from __future__ import annotations

from collections.abc import Sequence

from genericbuilders.specs import AttentionSpec
from typecheck.designs.asserting.attention import FlashInferBackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.state import GDNBackend
from typecheck.designs.shared.batch import STATE_SPEC, UNIFORM_SPEC


def workspace_heads(groups: Sequence[AttentionGroup]) -> int:
    total: int = 0
    for group in groups:
        if group.backend is GDNBackend:
            spec = group.kv_cache_spec
            assert isinstance(spec, AttentionSpec)  # E
            total += spec.num_kv_heads
    return total


def run() -> object:
    return workspace_heads([place(FlashInferBackend, UNIFORM_SPEC), place(GDNBackend, STATE_SPEC)])
