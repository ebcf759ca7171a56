"""Groups of three back ends, with three metadata and spec types, stand in one list.

Right: the list asks of them only what every group can do.
"""

from __future__ import annotations

from typecheck.designs.asserting.attention import FullBackend, MLABackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.runner import Runner
from typecheck.designs.asserting.state import Mamba2Backend
from typecheck.designs.shared.batch import FULL_SPEC, MLA_SPEC, STATE_SPEC, two_requests


def run() -> object:
    groups: list[AttentionGroup] = []
    groups.append(place(FullBackend, FULL_SPEC))
    groups.append(place(MLABackend, MLA_SPEC))
    groups.append(place(Mamba2Backend, STATE_SPEC))
    step = Runner(groups).build(two_requests())
    return len(step), sum(group.kv_cache_spec.page_size_bytes for group in groups)
