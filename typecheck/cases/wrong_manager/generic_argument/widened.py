"""The manager of a plug-in's window layers is derived from the one that keeps every block.

At run time: wrong: 16; right: 3
"""

from __future__ import annotations

from genericbuilders.cache import BlockPool
from genericbuilders.specs import SlidingWindowSpec
from typecheck.designs.shared.batch import WINDOW_SPEC, new_pool
from typecheck.designs.widened.managers import FullAttentionManager


class RecentTokensManager(FullAttentionManager):  # E
    """The last window of tokens is kept."""

    def __init__(self, kv_cache_spec: SlidingWindowSpec, pool: BlockPool) -> None:
        super().__init__(kv_cache_spec, pool)
        self.sliding_window: int = kv_cache_spec.sliding_window


def run() -> object:
    return RecentTokensManager(WINDOW_SPEC, new_pool()).blocks_for_longest(64)
