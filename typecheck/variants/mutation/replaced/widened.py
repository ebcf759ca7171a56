"""The runner gives a layer a larger block size than its spec has.

Right: it makes a new spec, and leaves the old one as it is.
"""

from __future__ import annotations

from dataclasses import replace

from typecheck.designs.shared.batch import FULL_SPEC
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.layers import place


def run() -> object:
    group = place(FullBackend, replace(FULL_SPEC, block_size=8))
    return group.kv_cache_spec.block_size, FULL_SPEC.block_size
