"""The second branch was copied and its check not changed: it asks for Mamba2 again, and reads the gated delta rule's
metadata.

At run time: wrong: 0; right: 1
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import GDNMetadata, Mamba2Metadata
from typecheck.designs.widened.core import AttentionGroup, Step
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.runner import Runner
from typecheck.designs.widened.state import GDNBackend, Mamba2Backend


def rolled_back(groups: Sequence[AttentionGroup], step: Step) -> int:
    counts: list[int] = []
    for group in groups:
        metadata = step[group.layer_names[0]]
        if group.backend is Mamba2Backend:
            assert isinstance(metadata, Mamba2Metadata)
            counts.append(metadata.num_states)
        elif group.backend is Mamba2Backend:  # E
            assert isinstance(metadata, GDNMetadata)  # E?
            counts.append(metadata.num_speculative_tokens)
    return sum(counts)


def run() -> object:
    groups = [place(GDNBackend, STATE_SPEC)]
    return rolled_back(groups, Runner(groups).build(two_requests()))
