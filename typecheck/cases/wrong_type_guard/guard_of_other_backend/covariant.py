"""The runner picks the groups of linear attention, but what it then reads is Mamba2's: only the check was changed
after copying.

At run time: AttributeError: 'LinearMetadata' object has no attribute 'num_states'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.covariant.attention import FULL
from typecheck.designs.covariant.core import Group, Step
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.covariant.state import LINEAR
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests


def num_states(groups: Sequence[Group], step: Step) -> int:
    return sum(group.metadata(step).num_states for group in groups if LINEAR.owns(group))  # E


def run() -> object:
    full, _ = place(FULL, FULL_SPEC)
    linear, _ = place(LINEAR, STATE_SPEC)
    groups: list[Group] = [full, linear]
    return num_states(groups, Runner(groups).build(two_requests()))
