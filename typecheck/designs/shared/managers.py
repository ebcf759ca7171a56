"""The part of a cache manager that no design types differently."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence

from typing_extensions import override

from genericbuilders.cache import GroupManager
from genericbuilders.cache.block_hash import BlockHash

__all__ = ["WithoutPrefixCaching"]


class WithoutPrefixCaching(GroupManager, ABC):
    """A manager that never finds a block of an earlier request."""

    @override
    def find_longest_cache_hit(self, hashes: Sequence[BlockHash], max_hit_tokens: int) -> list[int]:
        return []

    @override
    def num_common_prefix_blocks(self, request_ids: Sequence[str]) -> int:
        return 0
