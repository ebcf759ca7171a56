"""Groups of three back ends, with three metadata and spec types, stand in one list.

Right: the list asks of them only what every group can do.
"""

from __future__ import annotations

from typecheck.designs.shared.batch import FULL_SPEC, MLA_SPEC, STATE_SPEC, two_requests
from typecheck.designs.widened.attention import FullBackend, MLABackend
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.runner import Runner
from typecheck.designs.widened.state import Mamba2Backend


def run() -> object:
    groups: list[AttentionGroup] = []
    groups.append(place(FullBackend, FULL_SPEC))
    groups.append(place(MLABackend, MLA_SPEC))
    groups.append(place(Mamba2Backend, STATE_SPEC))
    step = Runner(groups).build(two_requests())
    return len(step), sum(group.kv_cache_spec.page_size_bytes for group in groups)
