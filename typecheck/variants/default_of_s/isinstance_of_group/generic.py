"""A tool picks the groups out of a list of any objects and reads their specs.

Right: a group of any back end has a spec, and it has a page size.
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import Group
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC


def page_bytes(things: Sequence[object]) -> list[int]:
    return [thing.kv_cache_spec.page_size_bytes for thing in things if isinstance(thing, Group)]


def run() -> object:
    full, _ = place(FULL, FULL_SPEC)
    mamba2, _ = place(MAMBA2, STATE_SPEC)
    return page_bytes(["no group", full, mamba2])
