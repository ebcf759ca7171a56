"""The runner picks the groups of linear attention, but what it then reads is Mamba2's: only the check was changed
after copying.

At run time: AssertionError:
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.core import AttentionGroup, Step
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.runner import Runner
from typecheck.designs.asserting.state import LinearBackend
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata


def num_states(groups: Sequence[AttentionGroup], step: Step) -> int:
    total: int = 0
    for group in groups:
        if group.backend is LinearBackend:
            metadata = step[group.layer_names[0]]
            assert isinstance(metadata, Mamba2Metadata)  # E
            total += metadata.num_states
    return total


def run() -> object:
    groups = [place(FullBackend, FULL_SPEC), place(LinearBackend, STATE_SPEC)]
    return num_states(groups, Runner(groups).build(two_requests()))
