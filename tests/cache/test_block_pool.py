from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from genericbuilders.cache import NULL_BLOCK, BlockHash, BlockPool, OutOfBlocksError, hash_block

NUM_BLOCKS = 8


def key(number: int) -> BlockHash:
    return hash_block(None, [number])


class PoolAgainstModel(RuleBasedStateMachine):
    """The pool beside plain lists and dictionaries that are searched from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS)
        self.refs = dict.fromkeys(range(1, NUM_BLOCKS), 0)
        self.free = list(range(1, NUM_BLOCKS))
        self.held: dict[int, BlockHash] = {}
        # Each holder holds a block once, as a request does.
        self.holders: list[list[int]] = []

    @rule(count=st.integers(0, NUM_BLOCKS))
    def take(self, count: int) -> None:
        if count > len(self.free):
            with pytest.raises(OutOfBlocksError, match=rf"{count} blocks .* {len(self.free)} of {NUM_BLOCKS - 1} are"):
                self.pool.get_new_blocks(count)
            return
        blocks = self.pool.get_new_blocks(count)
        assert blocks == self.free[:count]
        del self.free[:count]
        for block in blocks:
            self.refs[block] = 1
            self.held.pop(block, None)
        self.holders.append(blocks)

    @precondition(lambda self: bool(self.holders))
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        blocks = self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1)))
        order = data.draw(st.permutations(blocks))
        self.pool.free_blocks(iter(order))
        for block in order:
            self.refs[block] -= 1
            if not self.refs[block]:
                self.free.insert(len(self.free) if block in self.held else 0, block)

    @precondition(lambda self: any(self.refs.values()))
    @rule(data=st.data(), number=st.integers(0, 5))
    def cache(self, data: st.DataObject, number: int) -> None:
        block = data.draw(st.sampled_from(sorted(block for block, refs in self.refs.items() if refs)))
        if self.held.get(block, key(number)) != key(number):
            with pytest.raises(ValueError, match=f"block {block} holds"):
                self.pool.cache_block(block, key(number))
            return
        taken = any(other != block and known == key(number) for other, known in self.held.items())
        assert self.pool.cache_block(block, key(number)) is not taken
        if not taken:
            self.held[block] = key(number)

    @rule(numbers=st.sets(st.integers(0, 5)))
    def hit(self, numbers: set[int]) -> None:
        blocks = [block for number in sorted(numbers) if (block := self.pool.find(key(number))) is not None]
        assert {key(number) for number in numbers} & set(self.held.values()) == {self.held[block] for block in blocks}
        assert self.pool.num_free_among(blocks) == sum(block in self.free for block in blocks)
        self.pool.touch(blocks)
        for block in blocks:
            self.refs[block] += 1
            if block in self.free:
                self.free.remove(block)
        self.holders.append(blocks)

    @rule()
    def reset(self) -> None:
        idle = not any(self.refs.values())
        assert self.pool.reset_prefix_cache() is idle
        if idle:
            self.held.clear()

    @invariant()
    def agrees(self) -> None:
        assert self.pool.free_block_ids() == self.free
        assert self.pool.num_free_blocks == len(self.free)
        assert self.pool.usage == pytest.approx(1 - len(self.free) / (NUM_BLOCKS - 1))
        assert {block: self.pool.ref_count(block) for block in self.refs} == self.refs
        assert {block: self.pool.block_hash(block) for block in self.held} == self.held
        assert self.pool.num_cached_blocks == len(self.held)
        assert set(self.free) == {block for block, refs in self.refs.items() if not refs}
        assert self.pool.ref_count(NULL_BLOCK) == 0

    def teardown(self) -> None:
        for blocks in self.holders:
            self.pool.free_blocks(blocks)
        assert self.pool.num_free_blocks == NUM_BLOCKS - 1
        assert sorted(self.pool.free_block_ids()) == list(range(1, NUM_BLOCKS))


TestPoolAgainstModel = PoolAgainstModel.TestCase
TestPoolAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_blocks_with_tokens_are_reused_last_and_the_oldest_first() -> None:
    pool = BlockPool(6)
    first, second, third = pool.get_new_blocks(3)
    pool.cache_block(first, key(1))
    pool.cache_block(second, key(2))
    pool.free_blocks([second])
    pool.free_blocks([first])
    pool.free_blocks([third])
    assert pool.free_block_ids() == [third, 4, 5, second, first]
    pool.get_new_blocks(4)
    assert pool.find(key(2)) is None
    assert pool.find(key(1)) == first


def test_a_hit_saves_a_block_from_eviction() -> None:
    pool = BlockPool(3)
    blocks = pool.get_new_blocks(2)
    for number, block in enumerate(blocks):
        pool.cache_block(block, key(number))
    pool.free_blocks(blocks)
    pool.touch([blocks[0]])
    assert pool.get_new_blocks(1) == [blocks[1]]
    assert pool.find(key(0)) == blocks[0]
    assert pool.num_free_blocks == 0


def test_of_two_blocks_with_equal_tokens_one_is_found() -> None:
    pool = BlockPool(3)
    first, second = pool.get_new_blocks(2)
    assert pool.cache_block(first, key(1))
    assert pool.cache_block(first, key(1))
    assert not pool.cache_block(second, key(1))
    pool.free_blocks([second, first])
    assert pool.find(key(1)) == first


def test_misuse_is_refused_and_changes_nothing() -> None:
    pool = BlockPool(4)
    held = pool.get_new_blocks(1)
    for wrong, told in (([held[0], held[0]], "more than once"), ([held[0], 2], "2 is free already")):
        with pytest.raises(ValueError, match=told):
            pool.free_blocks(wrong)
    for wrong_id, told in ((0, "null block"), (4, "not in the pool"), (-1, "not in the pool")):
        with pytest.raises(ValueError, match=told):
            pool.free_blocks([*held, wrong_id])
        with pytest.raises(ValueError, match=told):
            pool.touch([*held, wrong_id])
        with pytest.raises(ValueError, match=told):
            pool.cache_block(wrong_id, key(1))
    with pytest.raises(ValueError, match="block 2 is free and holds nothing"):
        pool.touch([*held, 2])
    with pytest.raises(ValueError, match="block 2 is free; only"):
        pool.cache_block(2, key(1))
    with pytest.raises(ValueError, match="num_blocks is -1"):
        pool.get_new_blocks(-1)
    assert pool.ref_count(held[0]) == 1
    assert pool.num_free_blocks == 2
    with pytest.raises(ValueError, match=r"num_blocks is 1 .* at least 2"):
        BlockPool(1)


def test_reserved_blocks_are_nobody_s() -> None:
    pool = BlockPool(6)
    held = pool.get_new_blocks(1)
    reserved = pool.reserve(2)
    assert (pool.num_usable_blocks, pool.num_free_blocks) == (3, 2)
    assert pool.usage == pytest.approx(1 / 3)
    for block in reserved:
        for wrong in (
            lambda block=block: pool.free_blocks([*held, block]),
            lambda block=block: pool.touch([*held, block]),
            lambda block=block: pool.cache_block(block, key(1)),
        ):
            with pytest.raises(ValueError, match=f"block {block} is reserved"):
                wrong()
    assert pool.ref_count(held[0]) == 1
    pool.free_blocks(held)
    assert pool.reset_prefix_cache()
    assert not set(pool.get_new_blocks(3)) & set(reserved)
    for count in (2, 3):
        with pytest.raises(OutOfBlocksError, match=f"{count} blocks were to be reserved, but 2 of 2 are free"):
            BlockPool(3).reserve(count)
    assert BlockPool(3).reserve(0) == []


def test_memory_does_not_grow_with_what_is_served() -> None:
    pool = BlockPool(64)

    def serve(start: int, stop: int) -> None:
        for number in range(start, stop):
            blocks = pool.get_new_blocks(20)
            for index, block in enumerate(blocks):
                pool.cache_block(block, key(number * 20 + index))
            pool.free_blocks(reversed(blocks))

    serve(0, 50)
    tracemalloc.start()
    try:
        serve(50, 100)
        early, _ = tracemalloc.get_traced_memory()
        serve(100, 400)
        late, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert late - early < 4096
    assert pool.num_cached_blocks <= 63
