"""Cache managers: the library's base, generic in the spec, and the two that the small back ends need besides."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import overload

from typing_extensions import TypeVar, override

from genericbuilders.cache import BlockPool, FullAttentionManager, GroupManager, KVCacheManager, NoManagerError
from genericbuilders.cache import make_manager as make_full_manager
from genericbuilders.cache.block_hash import BlockHash
from genericbuilders.cache.request_size import UNSIZED, RequestSize
from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec, cdiv

__all__ = [
    "FullAttentionManager",
    "KVCacheManager",
    "MambaManager",
    "NoManagerError",
    "SlidingWindowManager",
    "WithoutPrefixCaching",
    "make_manager",
]

S = TypeVar("S", bound=KVCacheSpec)


class WithoutPrefixCaching(KVCacheManager[S], ABC):
    """A manager that never finds a block of an earlier request."""

    @override
    def find_longest_cache_hit(self, hashes: Sequence[BlockHash], max_hit_tokens: int) -> list[int]:
        return []

    @override
    def num_common_prefix_blocks(self, request_ids: Sequence[str]) -> int:
        return 0


class SlidingWindowManager(WithoutPrefixCaching[SlidingWindowSpec]):
    """The last window of tokens is kept."""

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        return cdiv(min(num_tokens, self.spec.sliding_window), self.block_size) + 1


class MambaManager(WithoutPrefixCaching[MambaSpec]):
    """One state is kept, and one for each token that may be rolled back."""

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        return 1 + self.spec.num_speculative_blocks


@overload
def make_manager(spec: MambaSpec, pool: BlockPool) -> MambaManager: ...
@overload
def make_manager(spec: SlidingWindowSpec, pool: BlockPool) -> SlidingWindowManager: ...
@overload
def make_manager(spec: FullAttentionSpec, pool: BlockPool) -> FullAttentionManager: ...
@overload
def make_manager(spec: KVCacheSpec, pool: BlockPool) -> GroupManager: ...
def make_manager(spec: KVCacheSpec, pool: BlockPool) -> GroupManager:
    """The manager for ``spec``.

    Raises:
        NoManagerError: no manager serves it.
    """
    if isinstance(spec, MambaSpec):
        return MambaManager(spec, pool)
    if isinstance(spec, SlidingWindowSpec):
        return SlidingWindowManager(spec, pool)
    return make_full_manager(spec, pool)
