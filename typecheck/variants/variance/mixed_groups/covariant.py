"""Groups of three back ends, with three metadata and spec types, stand in one list.

Right: the list asks of them only what every group can do.
"""

from __future__ import annotations

from typecheck.designs.covariant.attention import FULL, MLA
from typecheck.designs.covariant.core import Group
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.covariant.state import MAMBA2
from typecheck.designs.shared.batch import FULL_SPEC, MLA_SPEC, STATE_SPEC, two_requests


def run() -> object:
    groups: list[Group] = []
    groups.append(place(FULL, FULL_SPEC)[0])
    groups.append(place(MLA, MLA_SPEC)[0])
    groups.append(place(MAMBA2, STATE_SPEC)[0])
    step = Runner(groups).build(two_requests())
    return len(step), sum(group.kv_cache_spec.page_size_bytes for group in groups)
