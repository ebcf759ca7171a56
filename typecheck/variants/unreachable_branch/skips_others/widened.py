"""The runner goes on to the next group if this one is not Mamba2's, and after that reads Mamba2's metadata.

Right: only a Mamba2 group gets that far, and there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.core import AttentionGroup, Step
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.runner import Runner
from typecheck.designs.widened.state import Mamba2Backend


def states(groups: Sequence[AttentionGroup], step: Step) -> tuple[int, int]:
    found = skipped = 0
    for group in groups:
        metadata = step[group.layer_names[0]]
        if not isinstance(metadata, Mamba2Metadata):
            skipped += 1
            continue
        found += metadata.num_states
    return found, skipped


def run() -> object:
    groups = [place(FullBackend, FULL_SPEC), place(Mamba2Backend, STATE_SPEC)]
    return states(groups, Runner(groups).build(two_requests()))
