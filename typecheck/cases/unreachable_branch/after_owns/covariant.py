"""The runner asks for groups over states first, so that the branch for the gated delta rule, one of them, never runs.

At run time: wrong: 1; right: 2
"""

from __future__ import annotations

from collections.abc import Sequence

from genericbuilders.specs import MambaSpec
from typecheck.designs.covariant.core import Group, Step
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.covariant.state import GDN
from typecheck.designs.shared.batch import STATE_SPEC, two_requests


def num_slots(groups: Sequence[Group], step: Step) -> int:
    total: int = 0
    for group in groups:
        if isinstance(group.kv_cache_spec, MambaSpec):
            total += 1
        elif GDN.owns(group):  # E
            total += 1 + group.metadata(step).num_speculative_tokens  # E?
    return total


def run() -> object:
    groups = [place(GDN, STATE_SPEC)[0]]
    return num_slots(groups, Runner(groups).build(two_requests()))
