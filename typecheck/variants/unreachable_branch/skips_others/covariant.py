"""The runner goes on to the next group if this one is not Mamba2's, and after that reads Mamba2's metadata.

Right: only a Mamba2 group gets that far, and there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.covariant.attention import FULL
from typecheck.designs.covariant.core import Group, Step
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.covariant.state import MAMBA2
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests


def states(groups: Sequence[Group], step: Step) -> tuple[int, int]:
    found = skipped = 0
    for group in groups:
        if not MAMBA2.owns(group):
            skipped += 1
            continue
        found += group.metadata(step).num_states
    return found, skipped


def run() -> object:
    groups: list[Group] = [place(FULL, FULL_SPEC)[0], place(MAMBA2, STATE_SPEC)[0]]
    return states(groups, Runner(groups).build(two_requests()))
