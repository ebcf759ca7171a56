"""The second branch was copied and its check not changed: it asks for Mamba2 again, and reads the gated delta rule's
metadata.

At run time: wrong: 0; right: 1
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.generic.core import Group, Step
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.generic.state import GDN, MAMBA2
from typecheck.designs.shared.batch import STATE_SPEC, two_requests


def rolled_back(groups: Sequence[Group], step: Step) -> int:
    counts: list[int] = []
    for group in groups:
        if MAMBA2.owns(group):
            counts.append(group.metadata(step).num_states)
        elif MAMBA2.owns(group):  # E
            counts.append(group.metadata(step).num_speculative_tokens)  # E?
    return sum(counts)


def run() -> object:
    groups = [place(GDN, STATE_SPEC)[0]]
    return rolled_back(groups, Runner(groups).build(two_requests()))
