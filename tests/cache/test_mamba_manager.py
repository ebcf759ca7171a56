"""States: which a request holds, what is found again, and that it is the state after exactly those tokens."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest
import torch

from genericbuilders.cache import (
    NULL_BLOCK,
    BlockHash,
    BlockPool,
    GroupManager,
    KVCacheCoordinator,
    MambaManager,
    OutOfBlocksError,
    extend_block_hashes,
    make_manager,
)
from genericbuilders.specs import FullAttentionSpec, MambaCacheMode, MambaSpec

MODES: tuple[MambaCacheMode, ...] = ("none", "align", "all")


def state_spec(mode: MambaCacheMode, block_size: int, num_speculative_blocks: int = 0) -> MambaSpec:
    return MambaSpec(
        block_size=block_size,
        shapes=((2,),),
        dtypes=(torch.float32,),
        mamba_cache_mode=mode,
        num_speculative_blocks=num_speculative_blocks,
    )


def full_spec(block_size: int) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=8, dtype=torch.float32)


def manager_of(mode: MambaCacheMode, block_size: int, num_blocks: int = 10) -> MambaManager:
    return make_manager(state_spec(mode, block_size), BlockPool(num_blocks))


def hashes_of(tokens: list[int], block_size: int) -> list[BlockHash]:
    hashes: list[BlockHash] = []
    extend_block_hashes(hashes, tokens, block_size)
    return hashes


@pytest.mark.parametrize("mode", MODES)
def test_five_thousand_requests_through_32_states_leak_nothing(mode: MambaCacheMode) -> None:
    choose = random.Random(0)
    coordinator = KVCacheCoordinator([manager_of(mode, 8, 33)], enable_prefix_caching=True)
    pool = coordinator.managers[0].pool
    running: dict[str, tuple[list[int], int]] = {}

    def feed(name: str, tokens: list[int], computed: int) -> bool:
        count = coordinator.max_piece(computed, min(len(tokens) - computed, 20))
        if not coordinator.grow(name, computed + count):
            return False
        coordinator.cache_blocks(name, tokens, computed + count)
        running[name] = (tokens, computed + count)
        return True

    def drop(name: str) -> None:
        coordinator.free(name)
        del running[name]

    def serve(first: int, stop: int) -> None:
        for number in range(first, stop):
            tokens = [choose.randrange(3)] * choose.randrange(20) + [choose.randrange(50) for _ in range(1, 20)]
            name = f"request-{number}"
            while (hit := coordinator.start(name, tokens, 20)) is None:
                drop(choose.choice(sorted(running)))
            count = coordinator.max_piece(hit, min(len(tokens) - hit, 20))
            coordinator.cache_blocks(name, tokens, hit + count)
            running[name] = (tokens, hit + count)
            # Some of the others go on, end, or lose their states when none is left.
            for other in choose.sample(sorted(running), min(3, len(running))):
                tokens, computed = running[other]
                if computed == len(tokens) or not feed(other, tokens, computed):
                    drop(other)
        for name in list(running):
            drop(name)
        assert sorted(pool.free_block_ids()) == list(range(1, 33))

    serve(0, 1000)
    tracemalloc.start()
    try:
        serve(1000, 1500)
        early, _ = tracemalloc.get_traced_memory()
        serve(1500, 5000)
        late, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert late - early < 8192


def test_one_live_state_a_request_and_one_for_each_draft_token() -> None:
    states = make_manager(state_spec("none", 4, num_speculative_blocks=2), BlockPool(8))
    assert states.num_new_blocks_needed("a", 0) == 0
    assert states.num_new_blocks_needed("a", 1) == states.num_new_blocks_needed("a", 1000) == 3
    states.allocate("a", 5)
    states.allocate("a", 1000)
    assert states.blocks_of("a") == [1, 2, 3]
    assert states.blocks_for_longest(1000) == 3
    states.allocate("b", 1)
    with pytest.raises(OutOfBlocksError, match="3 blocks were asked for, but 1 of 7 are free"):
        states.allocate("c", 1)
    states.cache_full_blocks("a", hashes_of(list(range(8)), 4), 8)
    assert states.pool.num_cached_blocks == 0
    assert states.find_longest_cache_hit(hashes_of(list(range(8)), 4), 8) == []
    states.free("a")
    states.free("b")
    assert states.pool.num_free_blocks == 7


def test_align_keeps_the_last_two_states_and_gives_back_the_others() -> None:
    states = manager_of("align", 4, num_blocks=3)
    tokens = list(range(20))
    rows = [[1], [1, 2], [0, 2, 1], [0, 0, 1, 2], [0, 0, 0, 2, 1]]
    for number, row in enumerate(rows, start=1):
        stop = 4 * number
        # With two states in all, the older one has to be given back before the new one is taken.
        assert states.num_new_blocks_needed("a", stop) == 1
        assert states.num_given_back("a", stop) == int(number > 2)
        states.allocate("a", stop - 1)
        states.allocate("a", stop)
        assert states.blocks_of("a") == row
        states.cache_full_blocks("a", hashes_of(tokens, 4), stop)
    assert states.find_longest_cache_hit(hashes_of(tokens, 4), 20) == [0, 0, 0, 0, 1]
    assert states.find_longest_cache_hit(hashes_of(tokens, 4), 19) == [0, 0, 0, 2]
    assert states.find_longest_cache_hit(hashes_of(tokens, 4), 15) == []
    with pytest.raises(OutOfBlocksError, match="request 'b' needs 1 state for 1 tokens, but none of 2 is free"):
        states.allocate("b", 1)
    assert states.blocks_of("a") == rows[-1]
    assert list(states.blocks_of("b")) == []


def test_a_request_goes_on_though_no_state_is_free_but_the_one_that_it_gives_back() -> None:
    coordinator = KVCacheCoordinator([manager_of("align", 4, num_blocks=3)], enable_prefix_caching=True)
    assert coordinator.start("a", list(range(30)), 4) == 0
    for stop in range(5, 31):
        assert coordinator.grow("a", stop)
    assert [list(row) for row in coordinator.blocks_of("a")] == [[0] * 6 + [1, 2]]
    assert coordinator.pools[0].num_free_blocks == 0


def test_however_many_block_ends_a_piece_crosses_it_takes_one_state() -> None:
    states = manager_of("align", 4, num_blocks=3)
    assert states.num_new_blocks_needed("a", 14) == 1
    states.allocate("a", 14)
    assert states.blocks_of("a") == [0, 0, 0, 1]
    assert states.num_new_blocks_needed("a", 30) == 1
    states.allocate("a", 30)
    assert states.blocks_of("a") == [0, 0, 0, 1, 0, 0, 0, 2]
    states.allocate("a", 33)
    assert states.blocks_of("a") == [0, 0, 0, 0, 0, 0, 0, 2, 1]
    states.free("a")
    assert states.pool.num_free_blocks == 2
    every = manager_of("all", 4)
    assert every.num_new_blocks_needed("a", 14) == 4


def test_a_state_that_another_request_holds_too_is_not_counted_as_given_back() -> None:
    states = manager_of("align", 4, num_blocks=4)
    tokens = list(range(12))
    states.allocate("a", 4)
    states.cache_full_blocks("a", hashes_of(tokens, 4), 4)
    states.adopt("b", states.find_longest_cache_hit(hashes_of(tokens, 4), 4))
    states.allocate("a", 8)
    assert states.num_given_back("a", 12) == 0
    states.free("b")
    assert states.num_given_back("a", 12) == 1


def test_a_hit_is_one_state_and_its_request_writes_behind_it() -> None:
    for mode in ("align", "all"):
        states = manager_of(mode, 4)
        tokens = list(range(9))
        states.allocate("a", 4)
        states.cache_full_blocks("a", hashes_of(tokens, 4), 4)
        states.allocate("a", 8)
        states.cache_full_blocks("a", hashes_of(tokens, 4), 8)
        hit = states.find_longest_cache_hit(hashes_of(tokens, 4), 8)
        assert hit == [0, 2]
        assert states.num_new_blocks_needed("b", 9, hit) == 1
        states.adopt("b", hit)
        states.allocate("b", 9)
        assert states.blocks_of("b") == [0, 2, 3]
        assert [states.pool.ref_count(block) for block in (1, 2, 3)] == [1, 2, 1]
        states.free("a")
        states.free("b")
        assert states.pool.num_free_blocks == 9


def feed(states: MambaManager, name: str, tokens: list[int], ends: list[int]) -> None:
    for end in ends:
        states.allocate(name, end)
        states.cache_full_blocks(name, hashes_of(tokens, states.block_size), end)


def test_case_11_a_block_is_found_only_if_it_holds_the_state_after_its_tokens() -> None:
    tokens = list(range(3026))
    hashes = hashes_of(tokens, 2048)
    aligned = manager_of("align", 2048)
    feed(aligned, "a", tokens, [1866, 3026])
    # The block of tokens 0 to 2,047 holds the state after 1,866 still.
    assert aligned.pool.num_cached_blocks == 0
    assert aligned.find_longest_cache_hit(hashes, 3025) == []
    # Cut as the engine cuts it, a piece ends where the block does.
    assert aligned.max_piece(1866, 1160) == 182
    feed(aligned, "b", tokens, [1866, 2048, 3026])
    assert aligned.find_longest_cache_hit(hashes, 3025) == [aligned.blocks_of("b")[0]]

    every = manager_of("all", 2048)
    feed(every, "a", tokens, [1866])
    assert every.pool.num_cached_blocks == 0
    # A kernel in this mode stores the state at each block end that a piece crosses.
    assert every.max_piece(1866, 1160) == 1160
    feed(every, "a", tokens, [3026])
    assert every.find_longest_cache_hit(hashes, 3025) == [every.blocks_of("a")[0]]
    assert every.pool.num_cached_blocks == 1


def test_case_12_pieces_end_at_multiples_of_the_state_groups_own_block() -> None:
    managers: list[GroupManager] = [make_manager(full_spec(816), BlockPool(64)), manager_of("align", 1648)]
    coordinator = KVCacheCoordinator(managers, enable_prefix_caching=True)
    tokens = list(range(5000))

    def ends(budget: int) -> list[int]:
        found: list[int] = []
        computed = 0
        while computed < len(tokens):
            computed += coordinator.max_piece(computed, min(budget, len(tokens) - computed))
            found.append(computed)
        return found

    assert ends(2000) == [1648, 3296, 4944, 5000]
    assert ends(1000) == [1000, 1648, 2648, 3296, 4296, 4944, 5000]
    assert ends(4096) == [3296, 4944, 5000]
    assert coordinator.start("a", tokens, 2000) == 0
    assert [len(row) for row in coordinator.blocks_of("a")] == [3, 1]
    # Nobody looks for prefixes: nothing has to end anywhere.
    assert KVCacheCoordinator(managers, enable_prefix_caching=False).max_piece(0, 2000) == 2000


def test_a_piece_ends_where_every_group_needs_it() -> None:
    managers: list[GroupManager] = [manager_of("align", 6), manager_of("align", 4)]
    coordinator = KVCacheCoordinator(managers, enable_prefix_caching=True)
    # 10 is cut to 6 for the first group, and 6 to 4 for the second.
    assert coordinator.max_piece(0, 10) == 4
    assert coordinator.max_piece(4, 6) == 2
    assert coordinator.max_piece(0, 13) == 12
    assert coordinator.max_piece(1, 2) == 2
    assert KVCacheCoordinator(list(reversed(managers)), enable_prefix_caching=True).max_piece(0, 10) == 4


@pytest.mark.parametrize(("state_block", "attention_block", "expected"), [(4, 2, 8), (3, 2, 6), (4, 4, 8), (2, 4, 8)])
def test_groups_agree_on_a_hit_that_ends_at_exactly_that_token(
    state_block: int, attention_block: int, expected: int
) -> None:
    def make(mode: MambaCacheMode) -> KVCacheCoordinator:
        attention = make_manager(full_spec(attention_block), BlockPool(20))
        return KVCacheCoordinator([attention, manager_of(mode, state_block, 20)], enable_prefix_caching=True)

    tokens = list(range(10))
    for mode in ("align", "all"):
        coordinator = make(mode)
        assert coordinator.start("a", tokens, 1) == 0
        for end in range(1, 11):
            assert coordinator.grow("a", end)
            coordinator.cache_blocks("a", tokens, end)
        assert coordinator.start("b", tokens, 10) == expected
        attention, states = coordinator.blocks_of("b")
        assert attention[: expected // attention_block] == coordinator.blocks_of("a")[0][: expected // attention_block]
        assert list(states[: expected // state_block - 1]) == [NULL_BLOCK] * (expected // state_block - 1)
        assert states[expected // state_block - 1] != NULL_BLOCK
    coordinator = make("none")
    assert coordinator.start("a", tokens, 10) == 0
    coordinator.cache_blocks("a", tokens, 10)
    # A state that is not found again makes a prefix worthless, so nothing is kept in the other group either.
    assert not coordinator.enable_prefix_caching
    assert coordinator.start("b", tokens, 10) == 0
    assert [manager.pool.num_cached_blocks for manager in coordinator.managers] == [0, 0]


def test_a_hit_on_states_only_is_no_hit() -> None:
    attention, states = make_manager(full_spec(4), BlockPool(6)), manager_of("align", 4, 20)
    coordinator = KVCacheCoordinator([attention, states], enable_prefix_caching=True)
    tokens = list(range(20))
    assert coordinator.start("a", tokens, 20) == 0
    coordinator.cache_blocks("a", tokens, 20)
    coordinator.free("a")
    # Another request takes the end of what "a" left in attention; its state at token 20 is still there.
    assert coordinator.start("b", list(range(50, 58)), 8) == 0
    coordinator.free("b")
    assert states.find_longest_cache_hit(hashes_of(tokens, 4), 20) != []
    assert coordinator.start("c", [*tokens, 99], 21) == 0


@pytest.mark.parametrize("make", [lambda: manager_of("align", 4), lambda: manager_of("all", 4)])
def test_computed_tokens_need_columns(make: Callable[[], MambaManager]) -> None:
    states = make()
    states.allocate("a", 4)
    with pytest.raises(ValueError, match=r"request 'a' h.* 1 .* too few for 8 computed tokens; allocate"):
        states.cache_full_blocks("a", hashes_of(list(range(8)), 4), 8)
    assert states.num_common_prefix_blocks(["a"]) == 0
