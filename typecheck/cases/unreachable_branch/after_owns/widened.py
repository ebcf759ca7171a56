"""The runner asks for groups over states first, so that the branch for the gated delta rule, one of them, never runs.

At run time: wrong: 1; right: 2
"""

from __future__ import annotations

from collections.abc import Sequence

from genericbuilders.specs import MambaSpec
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import GDNMetadata
from typecheck.designs.widened.core import AttentionGroup, Step
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.runner import Runner
from typecheck.designs.widened.state import GDNBackend


def num_slots(groups: Sequence[AttentionGroup], step: Step) -> int:
    total: int = 0
    for group in groups:
        if isinstance(group.kv_cache_spec, MambaSpec):
            total += 1
        elif group.backend is GDNBackend:  # E
            metadata = step[group.layer_names[0]]  # E?
            assert isinstance(metadata, GDNMetadata)
            total += 1 + metadata.num_speculative_tokens
    return total


def run() -> object:
    groups = [place(GDNBackend, STATE_SPEC)]
    return num_slots(groups, Runner(groups).build(two_requests()))
