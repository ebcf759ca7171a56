"""All groups' blocks of a request, taken and given back together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genericbuilders.cache.block_hash import BlockHash, extend_block_hashes
from genericbuilders.cache.block_pool import OutOfBlocksError
from genericbuilders.cache.manager import GroupManager

__all__ = ["BlockNeed", "KVCacheCoordinator"]


@dataclass(frozen=True)
class BlockNeed:
    """What one request asks of one group's pool, in blocks.

    Attributes:
        group: the group's index.
        block_size: tokens in one of its blocks.
        needed: blocks that the request holds at most.
        available: blocks that the pool has when nobody else holds any.
    """

    group: int
    block_size: int
    needed: int
    available: int

    @property
    def fits(self) -> bool:
        """Whether the pool is large enough for the request alone."""
        return self.needed <= self.available


class _Hashes:
    """One request's block hashes for each block size, and the salt that they are made with."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._by_block_size: dict[int, list[BlockHash]] = {}

    def extended(self, token_ids: Sequence[int], block_size: int) -> list[BlockHash]:
        hashes = self._by_block_size.setdefault(block_size, [])
        extend_block_hashes(hashes, token_ids, block_size, self._salt)
        return hashes


class KVCacheCoordinator:
    """Keeps the groups of one model in step: a request holds blocks in all of them, or in none.

    Each group has a pool of its own, since pages of different groups may differ in size.

    Args:
        managers: one a group.
        enable_prefix_caching: whether full blocks are kept for later requests with the same prefix.

    Raises:
        ValueError: two managers share a pool.
    """

    def __init__(self, managers: Sequence[GroupManager], *, enable_prefix_caching: bool) -> None:
        self.managers: tuple[GroupManager, ...] = tuple(managers)
        self.enable_prefix_caching = enable_prefix_caching
        self._hashes: dict[str, _Hashes] = {}
        num_pools = len({id(manager.pool) for manager in self.managers})
        if num_pools != len(self.managers):
            raise ValueError(f"{len(self.managers)} managers share {num_pools} pools; each group needs its own")

    def blocks_needed(self, num_tokens: int) -> list[BlockNeed]:
        """What a request that grows to ``num_tokens`` tokens asks of each group."""
        return [
            BlockNeed(index, manager.block_size, manager.blocks_for_longest(num_tokens), manager.pool.num_usable_blocks)
            for index, manager in enumerate(self.managers)
        ]

    def max_requests(self, num_tokens: int) -> int | None:
        """How many requests of ``num_tokens`` tokens fit at once, without a common prefix; ``None`` if any number."""
        return min(
            (need.available // need.needed for need in self.blocks_needed(num_tokens) if need.needed), default=None
        )

    def check_fits(self, num_tokens: int) -> None:
        """Refuse pools that are too small for even one request of ``num_tokens`` tokens.

        Raises:
            OutOfBlocksError: a group's pool is; it is named with the blocks needed and had.
        """
        for need in self.blocks_needed(num_tokens):
            if not need.fits:
                raise OutOfBlocksError(
                    f"one request of {num_tokens} tokens needs {need.needed} blocks of {need.block_size} tokens in "
                    f"group {need.group}, whose pool has {need.available}; make the pool larger, or requests shorter"
                )

    def blocks_of(self, request_id: str) -> list[Sequence[int]]:
        """The request's blocks in each group."""
        return [manager.blocks_of(request_id) for manager in self.managers]

    def start(self, request_id: str, token_ids: Sequence[int], num_tokens: int, cache_salt: bytes = b"") -> int | None:
        """Start a request that holds nothing: on the longest prefix known to all groups, and blocks for more.

        At least one of its tokens is left to be computed, since a hit brings no logits.

        Args:
            request_id: the request.
            token_ids: all its tokens so far.
            num_tokens: tokens that the caller wants to feed; fewer if the prefix leaves fewer.
            cache_salt: only requests of one salt share a prefix.

        Returns:
            Tokens whose keys and values are there already, or ``None`` if the blocks are not free; then nothing is
            held.

        Raises:
            ValueError: the request was started already.
        """
        if request_id in self._hashes or any(self.blocks_of(request_id)):
            raise ValueError(f"request {request_id!r} was started already; free it first")
        self._hashes[request_id] = _Hashes(cache_salt)
        hits = self._longest_hits(request_id, token_ids)
        computed = len(hits[0]) * self.managers[0].block_size if hits else 0
        total = min(computed + num_tokens, len(token_ids))
        for index, manager in enumerate(self.managers):
            blocks = hits[index] if hits else []
            needed = manager.num_new_blocks_needed(request_id, total) - len(blocks)
            if needed + manager.pool.num_free_among(blocks) > manager.pool.num_free_blocks:
                del self._hashes[request_id]
                return None
        for index, manager in enumerate(self.managers):
            manager.adopt(request_id, hits[index] if hits else [])
            manager.allocate(request_id, total)
        return computed

    def grow(self, request_id: str, num_tokens: int) -> bool:
        """Give the request blocks for its first ``num_tokens`` tokens in every group, or in none."""
        needs = [manager.num_new_blocks_needed(request_id, num_tokens) for manager in self.managers]
        if any(need > manager.pool.num_free_blocks for need, manager in zip(needs, self.managers, strict=True)):
            return False
        if any(needs):
            for manager in self.managers:
                manager.allocate(request_id, num_tokens)
        return True

    def cache_blocks(self, request_id: str, token_ids: Sequence[int], num_computed_tokens: int) -> None:
        """Let later requests find the blocks that the request's computed tokens fill.

        Args:
            request_id: the request, started before.
            token_ids: all its tokens so far; they start with those of earlier calls.
            num_computed_tokens: tokens whose keys and values are in the cache.

        Raises:
            ValueError: the request was not started, or has fewer blocks than its computed tokens fill.
        """
        if not self.enable_prefix_caching:
            return
        known = self._hashes.get(request_id)
        if known is None:
            raise ValueError(f"request {request_id!r} was not started, so its blocks cannot be cached")
        for manager in self.managers:
            hashes = known.extended(token_ids, manager.block_size)
            manager.cache_full_blocks(request_id, hashes, num_computed_tokens)

    def free(self, request_id: str) -> None:
        """Let go of all the request's blocks. Unknown requests are ignored."""
        self._hashes.pop(request_id, None)
        for manager in self.managers:
            manager.free(request_id)

    def num_common_prefix_blocks(self, request_ids: Sequence[str]) -> list[int]:
        """In each group, the blocks at the front that all of ``request_ids`` share."""
        return [manager.num_common_prefix_blocks(request_ids) for manager in self.managers]

    def reset_prefix_cache(self) -> bool:
        """`BlockPool.reset_prefix_cache` in every group, or, if a request holds blocks in any, in none."""
        pools = [manager.pool for manager in self.managers]
        if any(pool.num_free_blocks < pool.num_usable_blocks for pool in pools):
            return False
        return all(pool.reset_prefix_cache() for pool in pools)

    def _longest_hits(self, request_id: str, token_ids: Sequence[int]) -> list[list[int]]:
        if not self.enable_prefix_caching or not self.managers:
            return []
        limit = len(token_ids) - 1
        while limit > 0:
            hits: list[list[int]] = []
            lengths: list[int] = []
            for manager in self.managers:
                hashes = self._hashes[request_id].extended(token_ids, manager.block_size)
                hits.append(manager.find_longest_cache_hit(hashes, limit))
                lengths.append(len(hits[-1]) * manager.block_size)
            if min(lengths) == max(lengths):
                return hits if lengths[0] else []
            # Every group must start at the same token; try again within the shortest hit.
            limit = min(lengths)
        return []
