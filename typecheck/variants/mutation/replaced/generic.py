"""The runner gives a layer a larger block size than its spec has.

Right: it makes a new spec, and leaves the old one as it is.
"""

from __future__ import annotations

from dataclasses import replace

from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.layers import place
from typecheck.designs.shared.batch import FULL_SPEC


def run() -> object:
    group, _ = place(FULL, replace(FULL_SPEC, block_size=8))
    return group.spec.block_size, FULL_SPEC.block_size
