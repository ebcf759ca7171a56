"""Which blocks each request holds in one group of layers, by the rules of that group's spec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic

from typing_extensions import TypeVar, override

from genericbuilders.cache.block_hash import BlockHash
from genericbuilders.cache.block_pool import NULL_BLOCK, BlockPool
from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, UniformTypeKVCacheSpecs, cdiv

__all__ = ["FullAttentionManager", "GroupManager", "KVCacheManager", "NoManagerError", "told"]

S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)
F = TypeVar("F", bound=FullAttentionSpec | UniformTypeKVCacheSpecs, default=FullAttentionSpec)


class NoManagerError(TypeError):
    """No cache manager, or not the one that was named, serves a spec."""


class GroupManager(ABC):
    """Holds the blocks of every request in one group, whatever the spec: what a coordinator works with.

    A request has a row of columns, as its block table shows them. A column whose block it does not hold (any more)
    has the null block; such columns are at the front, or were never needed.

    Args:
        block_size: tokens in one block.
        pool: where the group's blocks come from.
    """

    def __init__(self, block_size: int, pool: BlockPool) -> None:
        self.block_size = block_size
        self.pool = pool
        self._blocks: dict[str, list[int]] = {}
        self._num_cached: dict[str, int] = {}

    @property
    def finds_prefixes(self) -> bool:
        """Whether blocks can be shared by requests with the same prefix at all. Unless overridden: they can."""
        return True

    @property
    def unit(self) -> str:
        """What one block is, in messages, as a plural."""
        return f"blocks of {self.block_size} tokens"

    def blocks_of(self, request_id: str) -> Sequence[int]:
        """The request's columns in the order of its tokens; none, if it is unknown."""
        return self._blocks.get(request_id, ())

    def max_piece(self, num_computed_tokens: int, wanted: int) -> int:
        """How many tokens behind the computed ones may be fed in one step, of ``wanted`` that the caller has.

        At least 1 if ``wanted`` is. Unless overridden: all of them.
        """
        return wanted

    def num_new_blocks_needed(self, request_id: str, num_tokens: int, hit: Sequence[int] = ()) -> int:
        """Blocks to be taken from the pool before the request's first ``num_tokens`` tokens have a place.

        Args:
            request_id: the request.
            num_tokens: its tokens.
            hit: the columns that a request which holds nothing is about to `adopt`.
        """
        return max(0, cdiv(num_tokens, self.block_size) - len(self.blocks_of(request_id) or hit))

    def num_given_back(self, request_id: str, num_tokens: int) -> int:
        """Blocks that become free when `allocate` gives the request new ones. Unless overridden: none."""
        return 0

    def allocate(self, request_id: str, num_tokens: int) -> None:
        """Give the request blocks for its first ``num_tokens`` tokens.

        Raises:
            OutOfBlocksError: the pool has too few; nothing is taken.
        """
        new = self.pool.get_new_blocks(self.num_new_blocks_needed(request_id, num_tokens))
        self._blocks.setdefault(request_id, []).extend(new)

    def adopt(self, request_id: str, blocks: Sequence[int]) -> None:
        """Start a request on columns that stand for its first tokens; those that are needed hold them already.

        Raises:
            ValueError: the request holds blocks.
        """
        if self._blocks.get(request_id):
            raise ValueError(f"request {request_id!r} holds blocks; a cache hit can only be its start")
        self.pool.touch(_held(blocks))
        self._blocks[request_id] = list(blocks)
        self._num_cached[request_id] = len(blocks)

    def cache_full_blocks(self, request_id: str, hashes: Sequence[BlockHash], num_computed_tokens: int) -> None:
        """Let later requests find the blocks that the computed tokens fill.

        Args:
            request_id: the request.
            hashes: one for each full block of its known tokens; more than are computed do no harm.
            num_computed_tokens: tokens whose keys and values are in the cache; the end of the piece that was fed last.

        Raises:
            ValueError: the request holds fewer blocks than its computed tokens fill.
        """
        known, full = self._num_cached.get(request_id, 0), min(num_computed_tokens // self.block_size, len(hashes))
        if full <= known:
            return
        blocks = self.blocks_of(request_id)
        if full > len(blocks):
            raise ValueError(
                f"request {request_id!r} holds {len(blocks)} blocks of {self.block_size} tokens, too few for "
                f"{num_computed_tokens} computed tokens; allocate before computing"
            )
        for index in range(known, full):
            self.pool.cache_block(blocks[index], hashes[index])
        self._num_cached[request_id] = full

    def free(self, request_id: str) -> None:
        """Let go of all the request's blocks, the last first, so that the end of a prefix is reused before its start.

        Unknown requests are ignored.
        """
        self._num_cached.pop(request_id, None)
        self.pool.free_blocks(reversed(_held(self._blocks.pop(request_id, []))))

    @abstractmethod
    def blocks_for_longest(self, num_tokens: int) -> int:
        """Blocks that one request holds at most, when it grows to ``num_tokens`` tokens."""

    @abstractmethod
    def find_longest_cache_hit(self, hashes: Sequence[BlockHash], max_hit_tokens: int) -> list[int]:
        """The columns of the longest known prefix of at most ``max_hit_tokens`` tokens, for `adopt`.

        They stand for exactly ``len(columns) * block_size`` tokens; columns that are not needed have the null block.
        """

    @abstractmethod
    def num_common_prefix_blocks(self, request_ids: Sequence[str]) -> int:
        """Blocks at the front that all of ``request_ids`` share."""


class KVCacheManager(GroupManager, Generic[S]):
    """A `GroupManager` that knows its spec at its type. `genericbuilders.cache.make_manager` makes it.

    Args:
        spec: what one layer's cache holds.
        pool: where the group's blocks come from.
    """

    def __init__(self, spec: S, pool: BlockPool) -> None:
        super().__init__(spec.block_size, pool)
        self.spec: S = spec


class FullAttentionManager(KVCacheManager[F]):
    """Every token of a request is kept until the request ends.

    Raises:
        NoManagerError: blocks of such a spec are not simply kept: its ``allocation_key`` is another.
    """

    def __init__(self, spec: F, pool: BlockPool) -> None:
        # The key, not the class: a subclass may give blocks back earlier or share some, and a wrapper's layers decide.
        if spec.allocation_key != (FullAttentionSpec,):
            raise NoManagerError(f"FullAttentionManager does not serve {told(spec)}: it keeps all blocks to the end")
        super().__init__(spec, pool)

    @override
    def blocks_for_longest(self, num_tokens: int) -> int:
        return cdiv(num_tokens, self.block_size)

    @override
    def find_longest_cache_hit(self, hashes: Sequence[BlockHash], max_hit_tokens: int) -> list[int]:
        found: list[int] = []
        for block_hash in hashes[: max_hit_tokens // self.block_size]:
            block = self.pool.find(block_hash)
            if block is None:
                break
            found.append(block)
        return found

    @override
    def num_common_prefix_blocks(self, request_ids: Sequence[str]) -> int:
        if not request_ids:
            return 0
        first, *others = (self.blocks_of(request_id) for request_id in request_ids)
        common = len(first)
        for blocks in others:
            common = min(common, len(blocks))
            common = next((index for index in range(common) if first[index] != blocks[index]), common)
        return common


def told(spec: KVCacheSpec) -> str:
    """A spec in messages: its type, and what decides which blocks a request holds."""
    key = ", ".join(part.__name__ if isinstance(part, type) else str(part) for part in spec.allocation_key)
    return f"a {type(spec).__name__} (allocation key: {key})"


def _held(columns: Sequence[int]) -> list[int]:
    return [block for block in columns if block != NULL_BLOCK]
