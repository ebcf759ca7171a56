"""A manager of full layers is made for a latent layer's spec.

Right: a latent layer keeps every token, too, and its spec is a full layer's.
"""

from __future__ import annotations

from typecheck.designs.covariant.managers import FullAttentionManager
from typecheck.designs.shared.batch import MLA_SPEC, new_pool


def run() -> object:
    manager = FullAttentionManager(MLA_SPEC, new_pool())
    return manager.spec.page_size_bytes, manager.blocks_for_longest(64)
