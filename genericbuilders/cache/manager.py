"""Which blocks each request holds in one group of layers, by the rules of that group's spec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic

from typing_extensions import TypeVar

from genericbuilders.cache.block_hash import BlockHash
from genericbuilders.cache.block_pool import NULL_BLOCK, BlockPool
from genericbuilders.cache.request_size import UNSIZED, RequestSize
from genericbuilders.specs import KVCacheSpec, cdiv

__all__ = ["GroupManager", "KVCacheManager", "NoManagerError", "told"]

S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)


class NoManagerError(TypeError):
    """No cache manager, or not the one that was named, serves a spec."""


class GroupManager(ABC):
    """Holds the blocks of every request in one group, whatever the spec: what a coordinator works with.

    A request has a row of columns, as its block table shows them. A column whose block it does not hold (any more)
    has the null block; such columns are at the front, behind `num_kept_columns`, or were never needed.

    Args:
        block_size: tokens in one block.
        pool: where the group's blocks come from.
    """

    def __init__(self, block_size: int, pool: BlockPool) -> None:
        self.block_size = block_size
        self.pool = pool
        self._blocks: dict[str, list[int]] = {}
        self._num_cached: dict[str, int] = {}
        # The column up to which each request's blocks have been looked at for giving back.
        self._num_settled: dict[str, int] = {}

    @property
    def finds_prefixes(self) -> bool:
        """Whether blocks can be shared by requests with the same prefix at all. Unless overridden: they can."""
        return True

    @property
    def shared_blocks(self) -> Sequence[int]:
        """Blocks at the front of every request's columns that all of them share. Unless overridden: none."""
        return ()

    @property
    def unit(self) -> str:
        """What one block is, in messages, as a plural."""
        return f"blocks of {self.block_size} tokens"

    def blocks_of(self, request_id: str) -> Sequence[int]:
        """The request's columns in the order of its tokens; none, if it is unknown."""
        return self._blocks.get(request_id, ())

    def num_kept_columns(self, request_id: str) -> int:
        """Columns at the front whose blocks are held to the end, though some behind them are given back.

        Unless overridden: none.
        """
        return 0

    def begin(self, request_id: str, size: RequestSize) -> None:
        """Note what decides a request's blocks beside its tokens, before the first is taken. `free` forgets it.

        Unless overridden: nothing does.
        """
        return

    def max_shared_tokens(self, size: RequestSize) -> int | None:
        """The first tokens that mean the same to every request that starts with them; ``None`` for all.

        Only they may be found again: in all groups, as what one layer computes is what the next one stores. Unless
        overridden: all.
        """
        return None

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
        return max(0, cdiv(num_tokens, self.block_size) - len(self._blocks.get(request_id) or hit))

    def num_given_back(self, request_id: str, num_tokens: int) -> int:
        """Blocks that become free when `allocate` gives the request new ones. Unless overridden: none."""
        return 0

    def allocate(self, request_id: str, num_tokens: int) -> Sequence[int]:
        """Give the request blocks for its first ``num_tokens`` tokens.

        Returns:
            The blocks that are taken from the pool for it.

        Raises:
            OutOfBlocksError: the pool has too few; nothing is taken.
        """
        new = self.pool.get_new_blocks(self.num_new_blocks_needed(request_id, num_tokens))
        self._blocks.setdefault(request_id, []).extend(new)
        return new

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
        blocks = self._blocks.get(request_id, [])
        if full > len(blocks):
            raise ValueError(
                f"request {request_id!r} holds {len(blocks)} blocks of {self.block_size} tokens, too few for "
                f"{num_computed_tokens} computed tokens; allocate before computing"
            )
        for index in range(known, full):
            self.pool.cache_block(blocks[index], hashes[index])
        self._num_cached[request_id] = full

    def give_back(self, request_id: str, num_computed_tokens: int) -> None:
        """Let go of blocks that no token behind the computed ones attends over. Unless overridden: there are none."""
        return

    def free(self, request_id: str) -> None:
        """Let go of all the request's blocks, the last first, so that the end of a prefix is reused before its start.

        Unknown requests are ignored.
        """
        self._num_cached.pop(request_id, None)
        self._num_settled.pop(request_id, None)
        self.pool.free_blocks(reversed(_held(self._blocks.pop(request_id, []))))

    @abstractmethod
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        """Blocks that one request holds at most, when it grows to ``num_tokens`` tokens.

        Raises:
            ValueError: no such request can be served, however many blocks there are.
        """

    def first_needed_column(self, num_columns: int) -> int:
        """The first of the columns that a request reads which starts behind ``num_columns``; it reads the rest, too.

        It never falls as columns are added. Unless overridden: it reads all.
        """
        return 0

    def hit_lengths(self, hashes: Sequence[BlockHash], max_blocks: int) -> Iterator[int]:
        """The numbers of columns that a request may start behind, up to ``max_blocks``: the largest first.

        Each block is looked up once, however many numbers are asked for.

        Args:
            hashes: one for each full block of the request's tokens.
            max_blocks: columns at most.
        """
        if not self.finds_prefixes:
            return
        # The blocks of columns found .. length are there.
        found = length = min(len(hashes), max_blocks)
        while length > 0:
            first = self.first_needed_column(length)
            while found > first and self.pool.find(hashes[found - 1]) is not None:
                found -= 1
            if found <= first:
                yield length
                length -= 1
                found = min(found, length)
            else:
                # Whatever ends behind the missing block needs it as well.
                found = length = found - 1

    def hit_columns(self, hashes: Sequence[BlockHash], num_columns: int) -> list[int]:
        """The columns for `adopt` of a request that starts behind one of the `hit_lengths`; unneeded ones are null."""
        first = self.first_needed_column(num_columns)
        found = [self.pool.find(block_hash) for block_hash in hashes[first:num_columns]]
        return [NULL_BLOCK] * first + [block for block in found if block is not None]

    def find_longest_cache_hit(self, hashes: Sequence[BlockHash], max_hit_tokens: int) -> list[int]:
        """The columns of the longest known prefix of at most ``max_hit_tokens`` tokens, for `adopt`.

        They stand for exactly ``len(columns) * block_size`` tokens; columns that are not needed have the null block.
        """
        longest = next(self.hit_lengths(hashes, max_hit_tokens // self.block_size), 0)
        return self.hit_columns(hashes, longest)

    def num_common_prefix_blocks(self, request_ids: Sequence[str]) -> int:
        """Blocks at the front that all of ``request_ids`` share and read. Unless overridden: none."""
        return 0

    def _let_go(self, request_id: str, start: int, stop: int) -> None:
        """Give back the blocks of columns ``start`` to ``stop``; both never fall during a request."""
        columns = self._blocks.get(request_id, [])
        start, stop = max(start, self._num_settled.get(request_id, 0)), min(stop, len(columns))
        if start >= stop:
            return
        blocks = _held(columns[start:stop])
        columns[start:stop] = [NULL_BLOCK] * (stop - start)
        self._num_settled[request_id] = stop
        self.pool.free_blocks(reversed(blocks))


class KVCacheManager(GroupManager, Generic[S]):
    """A `GroupManager` that knows its spec at its type. `genericbuilders.cache.make_manager` makes it.

    Args:
        spec: what one layer's cache holds.
        pool: where the group's blocks come from.
    """

    def __init__(self, spec: S, pool: BlockPool) -> None:
        super().__init__(spec.block_size, pool)
        self.spec: S = spec


def told(spec: KVCacheSpec) -> str:
    """A spec in messages: its type, and what decides which blocks a request holds."""
    key = ", ".join(part.__name__ if isinstance(part, type) else str(part) for part in spec.allocation_key)
    return f"a {type(spec).__name__} (allocation key: {key})"


def _held(columns: Sequence[int]) -> list[int]:
    return [block for block in columns if block != NULL_BLOCK]
