"""Sliding windows: which blocks are held at each step, and which prefixes are found again."""

from __future__ import annotations

import pytest
from hash_model import attention_spec
from hypothesis import given
from hypothesis import strategies as st
from window_specs import latent_window_spec, window_spec

from genericbuilders.cache import (
    NULL_BLOCK,
    BlockHash,
    BlockPool,
    KVCacheCoordinator,
    SlidingWindowManager,
    extend_block_hashes,
    make_manager,
)
from genericbuilders.config import EngineConfig


def hashes_of(tokens: list[int], block_size: int) -> list[BlockHash]:
    hashes: list[BlockHash] = []
    extend_block_hashes(hashes, tokens, block_size)
    return hashes


def held_columns(windowed: SlidingWindowManager) -> list[int]:
    return [column for column, block in enumerate(windowed.blocks_of("a")) if block != NULL_BLOCK]


# By block size, the columns that are held while each of the tokens 0..5 (the prompt), 6, 7, 8, 9, 10 is computed.
HELD = {
    1: [
        [0, 1, 2, 3, 4, 5],
        *([*range(position - 7 if position > 7 else 0, position + 1)] for position in range(6, 11)),
    ],
    2: [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4, 5]],
    4: [[0, 1], [0, 1], [0, 1], [0, 1, 2], [0, 1, 2], [0, 1, 2]],
    16: [[0]] * 6,
}


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("block_size", list(HELD))
def test_window_8_sees_the_last_8_positions_at_every_step(block_size: int, caching: bool) -> None:
    windowed = make_manager(window_spec(8, block_size), BlockPool(20))
    coordinator = KVCacheCoordinator([windowed], enable_prefix_caching=caching)
    tokens = list(range(11))
    steps: list[list[int]] = []
    assert coordinator.start("a", tokens[:6], 6) == 0
    for stop in range(6, 12):
        assert coordinator.grow("a", stop)
        steps.append(held_columns(windowed))
        # The last 8 positions, the token's own included, are in blocks that are held.
        assert {position // block_size for position in range(max(0, stop - 8), stop)} <= set(steps[-1])
        coordinator.cache_blocks("a", tokens[:stop], stop)
        # What is given back lies wholly before the next token's window.
        assert held_columns(windowed) == [
            column for column in range(-(-stop // block_size)) if (column + 1) * block_size > stop - 7
        ]
    assert steps == HELD[block_size]
    coordinator.free("a")
    assert windowed.pool.num_free_blocks == 19


def test_blocks_are_given_back_before_new_ones_are_taken() -> None:
    # A window of 4 and a token behind it touch two blocks of 4 at most, so a third is never needed.
    windowed = make_manager(window_spec(5), BlockPool(3))
    coordinator = KVCacheCoordinator([windowed], enable_prefix_caching=True)
    tokens = list(range(40))
    assert coordinator.start("a", tokens[:4], 4) == 0
    for stop in range(5, 41):
        coordinator.cache_blocks("a", tokens, stop - 1)
        assert coordinator.grow("a", stop)
    assert coordinator.num_common_prefix_blocks(["a"]) == [0]


def test_extra_retained_tokens_are_kept_and_found() -> None:
    windowed = make_manager(window_spec(4, 2, extra=3), BlockPool(20))
    tokens = list(range(16))
    windowed.allocate("a", 12)
    windowed.cache_full_blocks("a", hashes_of(tokens, 2), 12)
    windowed.give_back("a", 12)
    # Tokens 9 to 11 are in the next one's window, and 6 to 8 before it.
    assert held_columns(windowed) == [3, 4, 5]
    assert windowed.find_longest_cache_hit(hashes_of(tokens, 2), 12) == [0, 0, 0, *windowed.blocks_of("a")[3:6]]


def test_nothing_is_given_back_twice_or_for_unknown_requests() -> None:
    windowed = make_manager(window_spec(2, 2), BlockPool(9))
    windowed.give_back("unknown", 100)
    windowed.allocate("a", 12)
    for computed in (5, 8, 8, 6, 12):
        windowed.give_back("a", computed)
    assert held_columns(windowed) == [5]
    assert windowed.pool.num_free_blocks == 7
    windowed.free("a")
    assert windowed.pool.num_free_blocks == 8
    # A request of the same name starts over.
    windowed.allocate("a", 3)
    windowed.give_back("a", 3)
    assert held_columns(windowed) == [1]


def found(windowed: SlidingWindowManager, tokens: list[int], limit: int) -> list[int]:
    return windowed.find_longest_cache_hit(hashes_of(tokens, windowed.block_size), limit)


def with_cached(columns: list[int], window: int, block_size: int = 2, num_tokens: int = 12) -> SlidingWindowManager:
    """A manager in which just these columns of tokens 0, 1, 2 ... are found; their blocks are 10 and up."""
    windowed = make_manager(window_spec(window, block_size), BlockPool(40))
    blocks = windowed.pool.get_new_blocks(20)
    hashes = hashes_of(list(range(num_tokens)), block_size)
    for column in columns:
        windowed.pool.cache_block(blocks[9 + column], hashes[column])
    return windowed


def test_the_longest_hit_is_a_run_at_the_end_that_covers_the_window() -> None:
    tokens = list(range(12))
    # A window of 5 needs the 4 tokens before the next one: two blocks.
    assert found(with_cached([0, 1, 2, 3, 4, 5], 5), tokens, 12) == [0, 0, 0, 0, 14, 15]
    assert found(with_cached([0, 1, 2, 3, 4, 5], 5), tokens, 11) == [0, 0, 0, 13, 14]
    assert found(with_cached([3, 4], 5), tokens, 12) == [0, 0, 0, 13, 14]
    assert found(with_cached([0, 2, 3, 5], 5), tokens, 12) == [0, 0, 12, 13]
    # One block is too few, but for a prefix that begins with it.
    assert found(with_cached([0, 2, 4], 5), tokens, 12) == [10]
    assert found(with_cached([1, 3, 5], 5), tokens, 12) == []
    # A window of 6 reaches into a third block, and one of 1 needs none.
    assert found(with_cached([1, 2, 4, 5], 6), tokens, 12) == []
    assert found(with_cached([0, 1, 3, 4, 5], 6), tokens, 12) == [0, 0, 0, 13, 14, 15]
    assert found(with_cached([], 1), tokens, 11) == [0, 0, 0, 0, 0]
    # No whole block, no hit.
    assert found(with_cached([0], 5), tokens, 1) == []


def test_a_hit_starts_a_request_in_mid_sequence() -> None:
    pool = BlockPool(12)
    windowed = make_manager(window_spec(5), pool)
    coordinator = KVCacheCoordinator([windowed], enable_prefix_caching=True)
    tokens = list(range(30))
    assert coordinator.start("a", tokens[:24], 24) == 0
    coordinator.cache_blocks("a", tokens, 24)
    assert [block != NULL_BLOCK for block in windowed.blocks_of("a")] == [False] * 5 + [True]
    # Though given back, older blocks are found until somebody else takes them.
    assert coordinator.start("b", tokens[:14], 14) == 12
    assert [block != NULL_BLOCK for block in windowed.blocks_of("b")] == [False, False, True, True]
    assert pool.ref_count(windowed.blocks_of("b")[2]) == 1
    assert coordinator.start("c", [*tokens[:24], 1], 25) == 24
    assert windowed.blocks_of("c")[5] == windowed.blocks_of("a")[5]
    for name in "abc":
        coordinator.free(name)
    assert pool.num_free_blocks == 11


def test_full_and_window_agree_on_a_hit() -> None:
    full, windowed = make_manager(attention_spec(4), BlockPool(40)), make_manager(window_spec(5, 2), BlockPool(40))
    coordinator = KVCacheCoordinator([full, windowed], enable_prefix_caching=True)
    tokens = list(range(20))
    assert coordinator.start("a", tokens, 20) == 0
    coordinator.cache_blocks("a", tokens, 20)
    row = list(full.blocks_of("a"))
    assert coordinator.start("b", tokens[:19], 19) == 16
    assert full.blocks_of("b")[:4] == row[:4]
    assert list(windowed.blocks_of("b")[:6]) == [NULL_BLOCK] * 6
    assert NULL_BLOCK not in windowed.blocks_of("b")[6:]


@pytest.mark.parametrize("bounded_replay", [False, True])
def test_case_27_latent_windows_keep_their_fields(bounded_replay: bool) -> None:
    spec = latent_window_spec(5, 2, bounded_replay)
    windowed = make_manager(spec, BlockPool(20))
    assert (windowed.spec.alignment, windowed.spec.page_size_bytes) == (128, 128)
    assert (windowed.sliding_window, windowed.bounded_replay) == (5, bounded_replay)
    coordinator = KVCacheCoordinator(
        [windowed, make_manager(attention_spec(2), BlockPool(20))], enable_prefix_caching=True
    )
    tokens = list(range(13))
    assert coordinator.start("a", tokens, 13) == 0
    coordinator.cache_blocks("a", tokens, 13)
    assert [block != NULL_BLOCK for block in windowed.blocks_of("a")] == [False] * 4 + [True] * 3
    # A window that is to be replayed is not looked up, and then the model computes the whole prefix anew.
    assert coordinator.start("b", tokens, 13) == (0 if bounded_replay else 12)


@given(
    window=st.integers(1, 12),
    extra=st.sampled_from([0, 2]),
    block_size=st.sampled_from([1, 2, 3, 5]),
    budget=st.integers(1, 9),
    num_tokens=st.integers(1, 40),
)
def test_the_blocks_of_a_request_are_counted_before_it_starts(
    window: int, extra: int, block_size: int, budget: int, num_tokens: int
) -> None:
    config = EngineConfig(max_model_len=40, max_num_batched_tokens=budget)
    spec = window_spec(window, block_size, extra)
    windowed = make_manager(spec, BlockPool(50), config)
    assert windowed.blocks_for_longest(0) == 0
    most = 0
    # However the steps fall: all start at any token, and take as many tokens as they may.
    for first in range(budget):
        computed = 0
        while computed < num_tokens:
            stop = min(computed + (budget if computed else first or budget), num_tokens)
            windowed.allocate("a", stop)
            most = max(most, len(held_columns(windowed)))
            windowed.give_back("a", stop)
            computed = stop
        windowed.free("a")
    assert most <= windowed.blocks_for_longest(num_tokens) <= spec.max_resident_blocks(config)
    # Without the run's limits, all tokens may come in one step.
    assert make_manager(spec, BlockPool(50)).blocks_for_longest(num_tokens) == -(-num_tokens // block_size)


def test_decodes_hold_exactly_the_blocks_that_the_spec_counts() -> None:
    config = EngineConfig(max_model_len=100, max_num_batched_tokens=1)
    for window in range(1, 20):
        for block_size in (1, 2, 4, 16):
            windowed = make_manager(window_spec(window, block_size), BlockPool(150), config)
            most = 0
            for stop in range(1, 101):
                windowed.allocate("a", stop)
                most = max(most, len(held_columns(windowed)))
                windowed.give_back("a", stop)
            assert most == windowed.blocks_for_longest(100) == windowed.spec.max_resident_blocks(config)
