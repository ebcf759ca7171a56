"""All groups' blocks of a request, taken and given back together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from genericbuilders.cache.block_hash import BlockHash, extend_block_hashes
from genericbuilders.cache.block_pool import BlockPool, OutOfBlocksError
from genericbuilders.cache.manager import GroupManager
from genericbuilders.cache.request_size import UNSIZED, RequestSize

__all__ = ["BlockNeed", "KVCacheCoordinator"]


@dataclass(frozen=True)
class BlockNeed:
    """What one request asks of one pool, in blocks.

    Attributes:
        groups: the indices of the groups that take their blocks from the pool; usually one.
        unit: what a block is, as a plural.
        needed: blocks that the request holds at most, in these groups together.
        available: blocks that the pool has when nobody else holds any.
    """

    groups: tuple[int, ...]
    unit: str
    needed: int
    available: int

    @property
    def where(self) -> str:
        """The groups, in messages."""
        numbers = " and ".join(str(group) for group in self.groups)
        return f"group{'s' if len(self.groups) > 1 else ''} {numbers}"

    @property
    def fits(self) -> bool:
        """Whether the pool is large enough for the request alone."""
        return self.needed <= self.available


class _Hashes:
    """One request's block hashes for each block size and tag, and the salt that they are made with.

    ``max_tokens`` is how many of its tokens may be found again at most; ``None`` for all.
    """

    def __init__(self, salt: bytes, max_tokens: int | None) -> None:
        self._salt = salt
        self.max_tokens = max_tokens
        self._known: dict[tuple[int, bytes], list[BlockHash]] = {}

    def extended(self, token_ids: Sequence[int], block_size: int, tag: bytes) -> list[BlockHash]:
        hashes = self._known.setdefault((block_size, tag), [])
        extend_block_hashes(hashes, token_ids, block_size, tag + self._salt)
        return hashes if self.max_tokens is None else hashes[: self.max_tokens // block_size]


class KVCacheCoordinator:
    """Keeps the groups of one model in step: a request holds blocks in all of them, or in none.

    Groups have pools of their own, since their pages may differ in size, or share one whose pages fit them all.

    Args:
        managers: one a group.
        enable_prefix_caching: whether full blocks are kept for later requests with the same prefix. A group that
            cannot find prefixes again, such as states in the mode ``"none"``, turns it off for all.
        clear: called with a group's index and the blocks that it takes from a pool that it shares, before anything is
            computed: another group's pages may lie there.

    Attributes:
        enable_prefix_caching: whether prefixes are found again.
    """

    def __init__(
        self,
        managers: Sequence[GroupManager],
        *,
        enable_prefix_caching: bool,
        clear: Callable[[int, Sequence[int]], None] | None = None,
    ) -> None:
        self.managers: tuple[GroupManager, ...] = tuple(managers)
        self.enable_prefix_caching: bool = enable_prefix_caching and all(m.finds_prefixes for m in self.managers)
        self._clear = clear
        self._hashes: dict[str, _Hashes] = {}
        groups_of: dict[BlockPool, list[int]] = {}
        for group, manager in enumerate(self.managers):
            groups_of.setdefault(manager.pool, []).append(group)
        self._groups_of = {pool: tuple(groups) for pool, groups in groups_of.items()}
        # In a shared pool, blocks of two groups hold different things for the same tokens.
        self._tags = [
            group.to_bytes(8, "little") if len(groups_of[manager.pool]) > 1 else b""
            for group, manager in enumerate(self.managers)
        ]

    @property
    def pools(self) -> Sequence[BlockPool]:
        """The pools, in the order of their first groups."""
        return tuple(self._groups_of)

    def blocks_needed(self, num_tokens: int, size: RequestSize = UNSIZED) -> list[BlockNeed]:
        """What a request that grows to ``num_tokens`` tokens asks of each pool.

        Raises:
            ValueError: a group cannot serve such a request, however many blocks there are.
        """
        return [
            BlockNeed(
                groups,
                self.managers[groups[0]].unit if len(groups) == 1 else "blocks",
                sum(self.managers[group].blocks_for_longest(num_tokens, size) for group in groups),
                pool.num_usable_blocks,
            )
            for pool, groups in self._groups_of.items()
        ]

    def max_requests(self, num_tokens: int, size: RequestSize = UNSIZED) -> int | None:
        """How many requests of ``num_tokens`` tokens fit at once, without a common prefix; ``None`` if any number."""
        needs = self.blocks_needed(num_tokens, size)
        return min((need.available // need.needed for need in needs if need.needed), default=None)

    def max_piece(self, num_computed_tokens: int, wanted: int) -> int:
        """How many tokens of a request may be fed in one step, of ``wanted`` behind the computed ones.

        At least 1 if ``wanted`` is. Fewer than wanted where a group needs a piece to end at one of its block ends.
        """
        if not self.enable_prefix_caching:
            return wanted
        while True:
            # A piece that is cut for one group may have to be cut again for one that came before.
            before = wanted
            for manager in self.managers:
                wanted = manager.max_piece(num_computed_tokens, wanted)
            if wanted == before:
                return wanted

    def check_fits(self, num_tokens: int, size: RequestSize = UNSIZED) -> None:
        """Refuse pools that are too small for even one request of ``num_tokens`` tokens.

        Raises:
            OutOfBlocksError: one is; its groups are named with the blocks needed and had.
        """
        for need in self.blocks_needed(num_tokens, size):
            if not need.fits:
                raise OutOfBlocksError(
                    f"one request of {num_tokens} tokens needs {need.needed} {need.unit} in {need.where}, whose pool "
                    f"has {need.available}; make the pool larger, or requests shorter"
                )

    def blocks_of(self, request_id: str) -> list[Sequence[int]]:
        """The request's columns in each group."""
        return [manager.blocks_of(request_id) for manager in self.managers]

    def start(
        self,
        request_id: str,
        token_ids: Sequence[int],
        num_tokens: int,
        cache_salt: bytes = b"",
        size: RequestSize = UNSIZED,
    ) -> int | None:
        """Start a request that holds nothing: on the longest prefix known to all groups, and blocks for more.

        At least one of its tokens is left to be computed, since a hit brings no logits.

        Args:
            request_id: the request.
            token_ids: all its tokens so far.
            num_tokens: tokens that the caller wants to feed; fewer if the prefix leaves fewer.
            cache_salt: only requests of one salt share a prefix.
            size: what else decides its blocks; the same whenever the request starts anew.

        Returns:
            Tokens whose keys and values are there already, or ``None`` if the blocks are not free; then nothing is
            held.

        Raises:
            ValueError: the request was started already, or a group cannot serve its size.
        """
        if request_id in self._hashes or any(self.blocks_of(request_id)):
            raise ValueError(f"request {request_id!r} was started already; free it first")
        # Refuses a size before anything is noted of it.
        self.blocks_needed(len(token_ids), size)
        for manager in self.managers:
            manager.begin(request_id, size)
        limits = [manager.max_shared_tokens(size) for manager in self.managers]
        self._hashes[request_id] = _Hashes(cache_salt, min((n for n in limits if n is not None), default=None))
        computed, hits = self._longest_hits(request_id, token_ids)
        total = computed + self.max_piece(computed, min(num_tokens, len(token_ids) - computed))
        taken = dict.fromkeys(self._groups_of, 0)
        for manager, hit in zip(self.managers, hits, strict=True):
            taken[manager.pool] += manager.num_new_blocks_needed(request_id, total, hit)
            taken[manager.pool] += manager.pool.num_free_among(hit)
        if any(count > pool.num_free_blocks for pool, count in taken.items()):
            self.free(request_id)
            return None
        # All hits are held before any block is taken, or one group could take another's.
        for manager, hit in zip(self.managers, hits, strict=True):
            manager.adopt(request_id, hit)
        self._allocate(request_id, total)
        return computed

    def grow(self, request_id: str, num_tokens: int) -> bool:
        """Give the request blocks for its first ``num_tokens`` tokens in every group, or in none."""
        needs = [manager.num_new_blocks_needed(request_id, num_tokens) for manager in self.managers]
        if not any(needs):
            return True
        taken = dict.fromkeys(self._groups_of, 0)
        for manager, need in zip(self.managers, needs, strict=True):
            taken[manager.pool] += need - manager.num_given_back(request_id, num_tokens)
        if any(count > pool.num_free_blocks for pool, count in taken.items()):
            return False
        self._allocate(request_id, num_tokens)
        return True

    def cache_blocks(self, request_id: str, token_ids: Sequence[int], num_computed_tokens: int) -> None:
        """Note that tokens are computed: later requests find the blocks that they fill, and blocks are given back.

        Blocks that no later token attends over are free from now on, though they may still be found.

        Args:
            request_id: the request, started before.
            token_ids: all its tokens so far; they start with those of earlier calls.
            num_computed_tokens: tokens whose keys and values are in the cache: the end of the piece that was fed last.

        Raises:
            ValueError: the request was not started, or has fewer blocks than its computed tokens fill.
        """
        known = self._hashes.get(request_id)
        if known is None:
            raise ValueError(f"request {request_id!r} was not started, so its blocks cannot be cached")
        if self.enable_prefix_caching:
            for manager, tag in zip(self.managers, self._tags, strict=True):
                hashes = known.extended(token_ids, manager.block_size, tag)
                manager.cache_full_blocks(request_id, hashes, num_computed_tokens)
        for manager in self.managers:
            manager.give_back(request_id, num_computed_tokens)

    def free(self, request_id: str) -> None:
        """Let go of all the request's blocks. Unknown requests are ignored."""
        self._hashes.pop(request_id, None)
        for manager in self.managers:
            manager.free(request_id)

    def num_common_prefix_blocks(self, request_ids: Sequence[str]) -> list[int]:
        """In each group, the blocks at the front that all of ``request_ids`` share."""
        return [manager.num_common_prefix_blocks(request_ids) for manager in self.managers]

    def reset_prefix_cache(self) -> bool:
        """`BlockPool.reset_prefix_cache` in every pool, or, if a request holds blocks in any, in none."""
        if any(pool.num_free_blocks < pool.num_usable_blocks for pool in self._groups_of):
            return False
        return all(pool.reset_prefix_cache() for pool in self._groups_of)

    def _allocate(self, request_id: str, num_tokens: int) -> None:
        for group, manager in enumerate(self.managers):
            new = manager.allocate(request_id, num_tokens)
            if new and self._clear is not None and self._tags[group]:
                self._clear(group, new)

    def _longest_hits(self, request_id: str, token_ids: Sequence[int]) -> tuple[int, list[list[int]]]:
        """The tokens of the longest prefix known to all groups, at least one token short, and its columns in each."""
        nothing: list[list[int]] = [[] for _ in self.managers]
        if not self.enable_prefix_caching or not self.managers:
            return 0, nothing
        sizes = [manager.block_size for manager in self.managers]
        hashes = [
            self._hashes[request_id].extended(token_ids, size, tag) for size, tag in zip(sizes, self._tags, strict=True)
        ]
        lengths = [
            manager.hit_lengths(known, (len(token_ids) - 1) // size)
            for manager, known, size in zip(self.managers, hashes, sizes, strict=True)
        ]
        found = [next(each, 0) * size for each, size in zip(lengths, sizes, strict=True)]
        while (shortest := min(found)) < max(found):
            # Every group must start at the same token, and no group starts there behind the shortest.
            for group, each in enumerate(lengths):
                while found[group] > shortest:
                    found[group] = next(each, 0) * sizes[group]
        if not shortest:
            return 0, nothing
        return shortest, [
            manager.hit_columns(known, shortest // size)
            for manager, known, size in zip(self.managers, hashes, sizes, strict=True)
        ]
