"""Chunked local attention: the current chunk is held, and a prefix needs no more than the chunk that it ends in."""

from __future__ import annotations

from hash_model import attention_spec
from hypothesis import given
from hypothesis import strategies as st
from window_specs import chunk_spec

from genericbuilders.cache import (
    NULL_BLOCK,
    BlockHash,
    BlockPool,
    ChunkedLocalManager,
    KVCacheCoordinator,
    extend_block_hashes,
    make_manager,
)
from genericbuilders.config import EngineConfig


def hashes_of(tokens: list[int], block_size: int) -> list[BlockHash]:
    hashes: list[BlockHash] = []
    extend_block_hashes(hashes, tokens, block_size)
    return hashes


def held_columns(chunked: ChunkedLocalManager) -> list[int]:
    return [column for column, block in enumerate(chunked.blocks_of("a")) if block != NULL_BLOCK]


def test_blocks_before_the_current_chunk_are_given_back() -> None:
    # Chunks of 6 in blocks of 4: the second one starts within a block.
    chunked = make_manager(chunk_spec(6, 4), BlockPool(10))
    steps: list[list[int]] = []
    for stop in range(1, 15):
        chunked.allocate("a", stop)
        chunked.give_back("a", stop)
        steps.append(held_columns(chunked))
    # After 5 tokens the next one, at 5, is in the first chunk; the one at 6 needs column 1, where its chunk starts.
    assert steps[:5] == [[0]] * 4 + [[0, 1]]
    assert steps[5:11] == [[1]] * 3 + [[1, 2]] * 3
    # 12 starts a chunk and a block.
    assert steps[11:] == [[], [3], [3]]
    chunked.free("a")
    assert chunked.pool.num_free_blocks == 9
    assert chunked.num_common_prefix_blocks(["a"]) == 0


def with_cached(columns: list[int], chunk: int, block_size: int) -> ChunkedLocalManager:
    """A manager in which just these columns of tokens 0, 1, 2 ... are found; their blocks are 10 and up."""
    chunked = make_manager(chunk_spec(chunk, block_size), BlockPool(40))
    blocks = chunked.pool.get_new_blocks(25)
    hashes = hashes_of(list(range(24)), block_size)
    for column in columns:
        chunked.pool.cache_block(blocks[9 + column], hashes[column])
    return chunked


def test_a_hit_needs_only_the_chunk_that_the_next_token_lies_in() -> None:
    hashes = hashes_of(list(range(24)), 2)

    def found(columns: list[int], limit: int, chunk: int = 8) -> list[int]:
        return with_cached(columns, chunk, 2).find_longest_cache_hit(hashes, limit)

    # Up to 15 tokens: seven blocks, of which the chunk from 8 on has three.
    assert found([4, 5, 6], 15) == [0, 0, 0, 0, 14, 15, 16]
    assert found([4, 5], 15) == [0, 0, 0, 0, 14, 15]
    # With a gap, the hit ends before it; with none of its blocks, where the chunk starts: there nothing is read.
    assert found([4, 6], 15) == [0, 0, 0, 0, 14]
    assert found([5, 6], 15) == [0, 0, 0, 0]
    assert found([], 15) == [0, 0, 0, 0]
    assert found([], 16) == [0] * 8
    assert found([1, 2, 3], 7) == []
    assert found([0, 2], 7) == [10]
    # A chunk of 5 starts within a block, which holds the end of the one before: it is read from 5 and 15 on.
    assert found([2, 3], 9, chunk=5) == [0, 0, 12, 13]
    assert found([3], 9, chunk=5) == []
    assert found([7], 17, chunk=5) == [0] * 7 + [17]
    # Where chunk and block both start at 10, nothing is read.
    assert found([6], 15, chunk=5) == [0, 0, 0, 0, 0]


def test_full_and_chunk_agree_on_a_hit() -> None:
    full, chunked = make_manager(attention_spec(4), BlockPool(40)), make_manager(chunk_spec(6, 2), BlockPool(40))
    coordinator = KVCacheCoordinator([full, chunked], enable_prefix_caching=True)
    tokens = list(range(21))
    # Chunks alone would claim any prefix that ends at a chunk's start; the full group has none.
    assert coordinator.start("a", tokens, 21) == 0
    coordinator.cache_blocks("a", tokens, 21)
    assert held_columns(chunked) == [9, 10]
    assert coordinator.start("b", tokens, 21) == 20
    assert [block != NULL_BLOCK for block in chunked.blocks_of("b")] == [False] * 9 + [True] * 2
    coordinator.free("a")
    coordinator.free("b")
    assert [pool.num_free_blocks for pool in coordinator.pools] == [39, 39]


@given(
    chunk=st.integers(1, 12),
    block_size=st.sampled_from([1, 2, 3, 5]),
    budget=st.integers(1, 9),
    num_tokens=st.integers(1, 40),
)
def test_the_blocks_of_a_request_are_counted_before_it_starts(
    chunk: int, block_size: int, budget: int, num_tokens: int
) -> None:
    config = EngineConfig(max_model_len=40, max_num_batched_tokens=budget)
    spec = chunk_spec(chunk, block_size)
    chunked = make_manager(spec, BlockPool(50), config)
    most = 0
    for first in range(budget):
        computed = 0
        while computed < num_tokens:
            stop = min(computed + (budget if computed else first or budget), num_tokens)
            chunked.allocate("a", stop)
            most = max(most, len(held_columns(chunked)))
            chunked.give_back("a", stop)
            computed = stop
        chunked.free("a")
    assert most <= chunked.blocks_for_longest(num_tokens) <= spec.max_resident_blocks(config)
