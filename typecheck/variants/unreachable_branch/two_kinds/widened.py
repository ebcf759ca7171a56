"""The runner asks each group whether it is Mamba2's, else whether it is the delta rule's, else it is any other.

Right: all three kinds are in the list.
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import GDNMetadata, Mamba2Metadata
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.core import AttentionGroup, Step
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.runner import Runner
from typecheck.designs.widened.state import GDNBackend, Mamba2Backend


def sizes(groups: Sequence[AttentionGroup], step: Step) -> list[int]:
    found: list[int] = []
    for group in groups:
        metadata = step[group.layer_names[0]]
        if isinstance(metadata, Mamba2Metadata):
            found.append(metadata.num_states)
        elif isinstance(metadata, GDNMetadata):
            found.append(metadata.num_speculative_tokens)
        else:
            found.append(group.kv_cache_spec.page_size_bytes)
    return found


def run() -> object:
    groups = [place(Mamba2Backend, STATE_SPEC), place(GDNBackend, STATE_SPEC), place(FullBackend, FULL_SPEC)]
    return sizes(groups, Runner(groups).build(two_requests()))
