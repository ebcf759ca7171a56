"""The author of a manager does not say which spec it is for, and reads the window that only some specs have.

At run time: AttributeError: 'MambaSpec' object has no attribute 'sliding_window'
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from genericbuilders.cache.block_hash import BlockHash
from genericbuilders.cache.request_size import UNSIZED, RequestSize
from genericbuilders.specs import cdiv
from typecheck.designs.generic.managers import KVCacheManager
from typecheck.designs.shared.batch import STATE_SPEC, new_pool


class TailManager(KVCacheManager):
    """The end of a request is kept."""

    @override
    def find_longest_cache_hit(self, hashes: Sequence[BlockHash], max_hit_tokens: int) -> list[int]:
        return []

    @override
    def num_common_prefix_blocks(self, request_ids: Sequence[str]) -> int:
        return 0

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        return cdiv(min(num_tokens, self.spec.sliding_window), self.block_size) + 1  # E


def run() -> object:
    return TailManager(STATE_SPEC, new_pool()).blocks_for_longest(64)
