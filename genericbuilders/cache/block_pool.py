"""Which blocks are in use, which may be taken, and what the others still hold."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from genericbuilders.cache.block_hash import BlockHash
from genericbuilders.specs.arithmetic import require_at_least

__all__ = ["NULL_BLOCK", "BlockPool", "OutOfBlocksError"]

NULL_BLOCK: Final = 0
"""The block that is never given away: rows added by padding and unused columns point to it."""


class OutOfBlocksError(ValueError):
    """More blocks were asked for than are free."""


class BlockPool:
    """Blocks ``1 .. num_blocks - 1``, each free or held by one or more requests.

    A free block may still hold a full block of tokens under its hash. Such blocks are reused last, and the one that
    was freed longest ago goes first (LRU); reusing it evicts it. Free blocks form a doubly linked list in arrays of
    fixed size, so that every operation takes constant time a block and memory does not grow with what is served.

    Attributes:
        num_blocks: blocks in the pool, the null block included.

    Raises:
        ValueError: ``num_blocks`` is below 2.
    """

    def __init__(self, num_blocks: int) -> None:
        require_at_least(self, "num_blocks", num_blocks, 2, "blocks (one is the null block)")
        self.num_blocks = num_blocks
        self._ref_counts = array("i", bytes(4 * num_blocks))
        # Block 0 is the ring's anchor: the list's head is next[0], its tail previous[0].
        self._next = array("i", [*range(1, num_blocks), 0])
        self._previous = array("i", [num_blocks - 1, *range(num_blocks - 1)])
        self._num_free = num_blocks - 1
        self._hashes: list[BlockHash | None] = [None] * num_blocks
        self._cached: dict[BlockHash, int] = {}
        self._reserved: set[int] = set()

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that requests can get at all: all but the null block and reserved ones."""
        return self.num_blocks - 1 - len(self._reserved)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no request holds, those with cached tokens included."""
        return self._num_free

    @property
    def num_cached_blocks(self) -> int:
        """Blocks that can be found by their hash, held or free."""
        return len(self._cached)

    @property
    def usage(self) -> float:
        """The part of the usable blocks that requests hold, from 0 to 1."""
        return 1.0 - self._num_free / self.num_usable_blocks

    def ref_count(self, block_id: int) -> int:
        """How many requests hold the block; 0 for the null block, 1 for a reserved one."""
        return self._ref_counts[block_id]

    def block_hash(self, block_id: int) -> BlockHash | None:
        """The hash that the block is found by, if it is."""
        return self._hashes[block_id]

    def find(self, block_hash: BlockHash) -> int | None:
        """The block that holds these tokens, if one does. It may be free: `touch` it before anything else."""
        return self._cached.get(block_hash)

    def num_free_among(self, block_ids: Sequence[int]) -> int:
        """How many of the blocks are free, so that touching them leaves fewer to be taken. Null blocks do not count."""
        return sum(1 for block in block_ids if block != NULL_BLOCK and not self._ref_counts[block])

    def free_block_ids(self) -> list[int]:
        """The free blocks, the next one to be taken first."""
        found: list[int] = []
        block = self._next[NULL_BLOCK]
        while block != NULL_BLOCK:
            found.append(block)
            block = self._next[block]
        return found

    def get_new_blocks(self, num_blocks: int) -> list[int]:
        """Take free blocks, each held once from now on; what they held is forgotten.

        Raises:
            OutOfBlocksError: fewer are free; nothing is taken.
            ValueError: ``num_blocks`` is negative.
        """
        require_at_least(self, "num_blocks", num_blocks, 0, "blocks")
        if num_blocks > self._num_free:
            raise OutOfBlocksError(
                f"{num_blocks} blocks were asked for, but {self._num_free} of {self.num_usable_blocks} are free; "
                "free a request's blocks first, or make the pool larger"
            )
        taken: list[int] = []
        for _ in range(num_blocks):
            block = self._next[NULL_BLOCK]
            self._unlink(block)
            self._evict(block)
            self._ref_counts[block] = 1
            taken.append(block)
        return taken

    def reserve(self, num_blocks: int) -> list[int]:
        """Take free blocks for good, for what all requests share: no request ever gets them.

        Raises:
            OutOfBlocksError: no block would be left for requests; nothing is taken.
            ValueError: ``num_blocks`` is negative.
        """
        if num_blocks >= self._num_free:
            raise OutOfBlocksError(
                f"{num_blocks} blocks were to be reserved, but {self._num_free} of {self.num_usable_blocks} are free, "
                "and one must be left for requests; make the pool larger"
            )
        taken = self.get_new_blocks(num_blocks)
        self._reserved.update(taken)
        return taken

    def touch(self, block_ids: Sequence[int]) -> None:
        """Hold blocks that were found by their hash once more; free ones are free no longer.

        Raises:
            ValueError: an id is not one of the pool's usable blocks, or a free block holds nothing; nothing changes.
        """
        for block in block_ids:
            self._require_usable(block)
            if not self._ref_counts[block] and self._hashes[block] is None:
                raise ValueError(f"block {block} is free and holds nothing; take it with get_new_blocks")
        for block in block_ids:
            if not self._ref_counts[block]:
                self._unlink(block)
            self._ref_counts[block] += 1

    def free_blocks(self, block_ids: Iterable[int]) -> None:
        """Let go of blocks, each once. Those that nobody holds any more are free.

        Of blocks with cached tokens, the first in ``block_ids`` is the first to be reused: give the end of a
        sequence first, so that its beginning is found longest.

        Raises:
            ValueError: an id is not one of the pool's usable blocks, comes twice, or is free already; nothing changes.
        """
        blocks = list(block_ids)
        if len(set(blocks)) != len(blocks):
            raise ValueError(f"blocks {blocks} name one more than once; free each once")
        for block in blocks:
            self._require_usable(block)
            if not self._ref_counts[block]:
                raise ValueError(f"block {block} is free already; it was freed more often than it was held")
        for block in blocks:
            self._ref_counts[block] -= 1
            if not self._ref_counts[block]:
                # Nothing is lost by reusing a block that holds nothing, so it goes to the front.
                after = NULL_BLOCK if self._hashes[block] is None else self._previous[NULL_BLOCK]
                self._link(block, after)

    def cache_block(self, block_id: int, block_hash: BlockHash) -> bool:
        """Let the held block be found by the hash of its tokens, until it is evicted.

        Returns:
            Whether it is. If another block holds the same tokens, that one stays, and this one is not found.

        Raises:
            ValueError: the id is not one of the pool's usable blocks, the block is free, or has another hash.
        """
        self._require_usable(block_id)
        if not self._ref_counts[block_id]:
            raise ValueError(f"block {block_id} is free; only a block that is held can be cached")
        known = self._hashes[block_id]
        if known is not None and known != block_hash:
            raise ValueError(f"block {block_id} holds {known.hex()[:16]}; it cannot become {block_hash.hex()[:16]}")
        if self._cached.setdefault(block_hash, block_id) != block_id:
            return False
        self._hashes[block_id] = block_hash
        return True

    def reset_prefix_cache(self) -> bool:
        """Forget what blocks hold, as after a change of weights.

        Returns:
            Whether it was done. While a request holds blocks nothing is forgotten: blocks that it fills later would
            follow on tokens that were computed before the change.
        """
        if self._num_free != self.num_usable_blocks:
            return False
        for block in self._cached.values():
            self._hashes[block] = None
        self._cached.clear()
        return True

    def _require_usable(self, block_id: int) -> None:
        if not 0 < block_id < self.num_blocks:
            why = "the null block, which is never held" if block_id == NULL_BLOCK else "not in the pool"
            raise ValueError(f"block {block_id} is {why}; usable are 1 to {self.num_blocks - 1}")
        if block_id in self._reserved:
            raise ValueError(f"block {block_id} is reserved; no request holds it, and it is never freed")

    def _evict(self, block: int) -> None:
        block_hash = self._hashes[block]
        if block_hash is not None:
            del self._cached[block_hash]
            self._hashes[block] = None

    def _unlink(self, block: int) -> None:
        before, after = self._previous[block], self._next[block]
        self._next[before] = after
        self._previous[after] = before
        self._num_free -= 1

    def _link(self, block: int, before: int) -> None:
        after = self._next[before]
        self._previous[block], self._next[block] = before, after
        self._next[before] = self._previous[after] = block
        self._num_free += 1
