"""A tool picks the groups out of a list of any objects and reads their specs.

Right: a group of any back end has a spec, and it has a page size.
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.state import Mamba2Backend
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC


def page_bytes(things: Sequence[object]) -> list[int]:
    return [thing.kv_cache_spec.page_size_bytes for thing in things if isinstance(thing, AttentionGroup)]


def run() -> object:
    full = place(FullBackend, FULL_SPEC)
    mamba2 = place(Mamba2Backend, STATE_SPEC)
    return page_bytes(["no group", full, mamba2])
