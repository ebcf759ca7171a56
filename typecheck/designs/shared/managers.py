"""Cache managers that know their spec as any spec, and a table of them by spec class: for designs without `S`."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from genericbuilders.cache import BlockPool, GroupManager, NoManagerError
from genericbuilders.cache.block_hash import BlockHash
from genericbuilders.cache.request_size import UNSIZED, RequestSize
from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec, cdiv

__all__ = [
    "SPEC_MANAGER_MAP",
    "FullAttentionManager",
    "MambaManager",
    "NoManagerError",
    "SingleTypeKVCacheManager",
    "SlidingWindowManager",
    "make_manager",
]


class SingleTypeKVCacheManager(GroupManager, ABC):
    """A manager of one kind of layer."""

    def __init__(self, kv_cache_spec: KVCacheSpec, pool: BlockPool) -> None:
        super().__init__(kv_cache_spec.block_size, pool)
        self.spec: KVCacheSpec = kv_cache_spec

    @override
    def find_longest_cache_hit(self, hashes: Sequence[BlockHash], max_hit_tokens: int) -> list[int]:
        return []

    @override
    def num_common_prefix_blocks(self, request_ids: Sequence[str]) -> int:
        return 0


class FullAttentionManager(SingleTypeKVCacheManager):
    """Every token is kept."""

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        return cdiv(num_tokens, self.block_size)


class SlidingWindowManager(SingleTypeKVCacheManager):
    """The last window of tokens is kept."""

    def __init__(self, kv_cache_spec: SlidingWindowSpec, pool: BlockPool) -> None:
        super().__init__(kv_cache_spec, pool)
        self.sliding_window: int = kv_cache_spec.sliding_window

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        return cdiv(min(num_tokens, self.sliding_window), self.block_size) + 1


class MambaManager(SingleTypeKVCacheManager):
    """One state is kept, and one for each token that may be rolled back."""

    def __init__(self, kv_cache_spec: MambaSpec, pool: BlockPool) -> None:
        super().__init__(kv_cache_spec, pool)
        self.num_speculative_blocks: int = kv_cache_spec.num_speculative_blocks

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        return 1 + self.num_speculative_blocks


SPEC_MANAGER_MAP: Final[dict[type[KVCacheSpec], type[SingleTypeKVCacheManager]]] = {
    FullAttentionSpec: FullAttentionManager,
    SlidingWindowSpec: SlidingWindowManager,
    MambaSpec: MambaManager,
}


def make_manager(spec: KVCacheSpec, pool: BlockPool) -> SingleTypeKVCacheManager:
    """The manager for ``spec``.

    Raises:
        NoManagerError: no manager serves it.
    """
    manager = SPEC_MANAGER_MAP.get(type(spec))
    if manager is None:
        raise NoManagerError(f"no manager serves a {type(spec).__name__}")
    return manager(spec, pool)
