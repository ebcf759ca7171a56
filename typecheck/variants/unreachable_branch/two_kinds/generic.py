"""The runner asks each group whether it is Mamba2's, else whether it is the delta rule's, else it is any other.

Right: all three kinds are in the list.
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import Group, Step
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.generic.state import GDN, MAMBA2
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests


def sizes(groups: Sequence[Group], step: Step) -> list[int]:
    found: list[int] = []
    for group in groups:
        if MAMBA2.owns(group):
            found.append(group.metadata(step).num_states)
        elif GDN.owns(group):
            found.append(group.metadata(step).num_speculative_tokens)
        else:
            found.append(group.kv_cache_spec.page_size_bytes)
    return found


def run() -> object:
    groups: list[Group] = [place(MAMBA2, STATE_SPEC)[0], place(GDN, STATE_SPEC)[0], place(FULL, FULL_SPEC)[0]]
    return sizes(groups, Runner(groups).build(two_requests()))
