from __future__ import annotations

import math
import random
import tracemalloc
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from genericbuilders.cache import (
    BlockHash,
    BlockPool,
    GroupManager,
    KVCacheCoordinator,
    OutOfBlocksError,
    extend_block_hashes,
    make_manager,
)
from genericbuilders.specs import FullAttentionSpec


def spec_of(block_size: int) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=8, dtype=torch.float32)


def coordinator_of(sizes: dict[int, int] | list[tuple[int, int]], *, caching: bool = True) -> KVCacheCoordinator:
    """One group for each block size and number of blocks."""
    pairs = sizes.items() if isinstance(sizes, dict) else sizes
    managers = [make_manager(spec_of(size), BlockPool(num_blocks)) for size, num_blocks in pairs]
    return KVCacheCoordinator(managers, enable_prefix_caching=caching)


def free_blocks(coordinator: KVCacheCoordinator) -> list[int]:
    return [manager.pool.num_free_blocks for manager in coordinator.managers]


@dataclass
class Served:
    tokens: list[int]
    salt: bytes
    computed: int
    # Per group, what the request's blocks were at any time: they never change, only grow.
    blocks: list[list[int]] = field(default_factory=list[list[int]])


class CoordinatorAgainstModel(RuleBasedStateMachine):
    """Groups of different block sizes beside a model that remembers what was last written to each block.

    The model writes a request's tokens to its blocks as an engine would. A block whose content is not what a request
    with those tokens would have computed is a wrong hit.
    """

    @initialize(
        sizes=st.sampled_from([[(4, 12)], [(2, 16), (3, 12)], [(4, 8), (4, 10)], [(1, 20), (6, 6)]]),
        caching=st.booleans(),
    )
    def begin(self, sizes: list[tuple[int, int]], caching: bool) -> None:
        self.sizes = sizes
        self.caching = caching
        self.coordinator = coordinator_of(sizes, caching=caching)
        self.alignment = math.lcm(*(size for size, _ in sizes))
        self.running: dict[str, Served] = {}
        self.count = 0
        # content[group][block]: for each written offset the whole prefix that led to it.
        self.content: list[dict[int, list[tuple[int, ...]]]] = [{} for _ in sizes]

    def write(self, name: str, stop: int) -> None:
        request = self.running[name]
        for group, (size, _) in enumerate(self.sizes):
            for position in range(request.computed, stop):
                block = request.blocks[group][position // size]
                owners = [
                    other for other, served in self.running.items() if block in served.blocks[group] and other != name
                ]
                assert not owners, f"{name} writes to block {block}, which {owners} hold"
                cell = self.content[group].setdefault(block, [])
                del cell[position % size :]
                cell.append((*request.salt, -1, *request.tokens[: position + 1]))
        request.computed = stop

    def note_blocks(self, name: str) -> None:
        request = self.running[name]
        now = [list(blocks) for blocks in self.coordinator.blocks_of(name)]
        for before, after in zip(request.blocks, now, strict=bool(request.blocks)):
            assert after[: len(before)] == before
        request.blocks = now

    def longest_known(self, tokens: list[int], salt: bytes) -> int:
        """The longest aligned prefix that every group still holds, by what is cached in its pool."""
        if not self.caching:
            return 0
        best = 0
        for stop in range(self.alignment, len(tokens), self.alignment):
            for group, (size, _) in enumerate(self.sizes):
                pool = self.coordinator.managers[group].pool
                held = [
                    tuple(cell)
                    for block, cell in self.content[group].items()
                    if len(cell) == size and pool.block_hash(block) is not None
                ]
                wanted = [
                    tuple((*salt, -1, *tokens[: start + offset + 1]) for offset in range(size))
                    for start in range(0, stop, size)
                ]
                if not all(block in held for block in wanted):
                    return best
            best = stop
        return best

    @rule(
        tokens=st.lists(st.integers(0, 1), min_size=1, max_size=18),
        budget=st.integers(1, 20),
        salt=st.sampled_from([b"", b"\x01"]),
    )
    def start(self, tokens: list[int], budget: int, salt: bytes) -> None:
        self.count += 1
        name = f"r{self.count}"
        expected = self.longest_known(tokens, salt)
        free = free_blocks(self.coordinator)
        order = [manager.pool.free_block_ids() for manager in self.coordinator.managers]
        hit = self.coordinator.start(name, tokens, budget, cache_salt=salt)
        if hit is None:
            # Either some group has too few blocks, or nothing would have been refused.
            assert [manager.pool.free_block_ids() for manager in self.coordinator.managers] == order
            assert not any(self.coordinator.blocks_of(name))
            total = min(expected + budget, len(tokens))
            assert any(
                -(-total // size) - expected // size > left - self.free_in_hit(group, tokens, salt, expected)
                for group, ((size, _), left) in enumerate(zip(self.sizes, free, strict=True))
            )
            return
        assert hit == expected
        assert hit < len(tokens)
        self.running[name] = Served(tokens, salt, hit)
        self.note_blocks(name)
        for group, (size, _) in enumerate(self.sizes):
            blocks = self.running[name].blocks[group]
            assert len(blocks) == -(-min(hit + budget, len(tokens)) // size)
            for position in range(hit):
                assert self.content[group][blocks[position // size]][position % size] == (
                    *salt,
                    -1,
                    *tokens[: position + 1],
                )
        self.write(name, min(hit + budget, len(tokens)))
        self.coordinator.cache_blocks(name, tokens, self.running[name].computed)

    def free_in_hit(self, group: int, tokens: list[int], salt: bytes, hit: int) -> int:
        size = self.sizes[group][0]
        manager = self.coordinator.managers[group]
        wanted = {
            tuple((*salt, -1, *tokens[: start + offset + 1]) for offset in range(size)) for start in range(0, hit, size)
        }
        return sum(
            manager.pool.ref_count(block) == 0 and manager.pool.block_hash(block) is not None and tuple(cell) in wanted
            for block, cell in self.content[group].items()
        )

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data(), more=st.lists(st.integers(0, 1), min_size=1, max_size=6))
    def grow(self, data: st.DataObject, more: list[int]) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        request = self.running[name]
        tokens = [*request.tokens, *more]
        free = free_blocks(self.coordinator)
        needs = [
            max(0, -(-len(tokens) // size) - len(blocks))
            for (size, _), blocks in zip(self.sizes, request.blocks, strict=True)
        ]
        grown = self.coordinator.grow(name, len(tokens))
        assert grown == all(need <= left for need, left in zip(needs, free, strict=True))
        if not grown:
            assert free_blocks(self.coordinator) == free
            return
        request.tokens = tokens
        self.note_blocks(name)
        self.write(name, len(tokens))
        self.coordinator.cache_blocks(name, tokens, len(tokens))

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        self.coordinator.free(name)
        del self.running[name]
        self.coordinator.free(name)

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data())
    def preempt_and_resume(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        request = self.running.pop(name)
        self.coordinator.free(name)
        # What it gave up is free now, so it always comes back.
        tokens = request.tokens[: request.computed]
        hit = self.coordinator.start(name, tokens, len(tokens), cache_salt=request.salt)
        assert hit is not None
        self.running[name] = Served(tokens, request.salt, hit)
        self.note_blocks(name)
        self.write(name, len(tokens))
        self.coordinator.cache_blocks(name, tokens, len(tokens))

    @rule()
    def reset(self) -> None:
        assert self.coordinator.reset_prefix_cache() is (not self.running)

    @invariant()
    def every_block_is_counted(self) -> None:
        for group, manager in enumerate(self.coordinator.managers):
            held = [block for request in self.running.values() for block in request.blocks[group]]
            for block in range(1, manager.pool.num_blocks):
                assert manager.pool.ref_count(block) == held.count(block)
            assert manager.pool.num_free_blocks == manager.pool.num_usable_blocks - len(set(held))
            assert 0 not in held

    def teardown(self) -> None:
        for name in list(self.running):
            self.coordinator.free(name)
        for manager in self.coordinator.managers:
            assert manager.pool.num_free_blocks == manager.pool.num_usable_blocks


TestCoordinatorAgainstModel = CoordinatorAgainstModel.TestCase
TestCoordinatorAgainstModel.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def test_five_thousand_requests_leak_nothing() -> None:
    choose = random.Random(0)
    coordinator = coordinator_of({4: 40, 6: 30})
    running: list[str] = []

    def serve(start: int, stop: int) -> None:
        for number in range(start, stop):
            prefix = [choose.randrange(3)] * choose.randrange(20)
            tokens = [*prefix, *(choose.randrange(50) for _ in range(choose.randrange(1, 30)))]
            name = f"request-{number}"
            while coordinator.start(name, tokens, len(tokens)) is None:
                coordinator.free(running.pop(choose.randrange(len(running))))
            coordinator.cache_blocks(name, tokens, len(tokens))
            running.append(name)
        for name in running:
            coordinator.free(name)
        running.clear()
        assert free_blocks(coordinator) == [39, 29]

    serve(0, 500)
    tracemalloc.start()
    try:
        serve(500, 1000)
        early, _ = tracemalloc.get_traced_memory()
        serve(1000, 5000)
        late, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert late - early < 8192


def test_a_request_is_as_if_alone_when_it_is_preempted_at_every_step() -> None:
    tokens = list(range(100, 140))
    for at in range(len(tokens)):
        coordinator = coordinator_of({4: 12, 6: 9})
        assert coordinator.start("a", tokens[:1], 1) == 0
        for stop in range(1, len(tokens) + 1):
            assert coordinator.grow("a", stop)
            coordinator.cache_blocks("a", tokens[:stop], stop)
            if stop == at + 1:
                coordinator.free("a")
                hit = coordinator.start("a", tokens[:stop], stop)
                # Everything it had computed is found again, up to the last block end common to both groups.
                assert hit == (stop - 1) // 12 * 12
        assert [len(blocks) for blocks in coordinator.blocks_of("a")] == [10, 7]
        coordinator.free("a")
        assert free_blocks(coordinator) == [11, 8]


def test_a_whole_prompt_is_never_a_hit() -> None:
    coordinator = coordinator_of({4: 10})
    tokens = list(range(8))
    assert coordinator.start("a", tokens, 8) == 0
    coordinator.cache_blocks("a", tokens, 8)
    assert coordinator.start("b", tokens, 8) == 4
    assert coordinator.start("c", [*tokens, 9], 9) == 8


def test_groups_agree_on_the_hit_even_if_one_has_lost_blocks() -> None:
    coordinator = coordinator_of([(4, 20), (4, 8)])
    tokens = list(range(24))
    assert coordinator.start("a", tokens, 24) == 0
    coordinator.cache_blocks("a", tokens, 24)
    coordinator.free("a")
    # In the small pool another request takes blocks from the end of what "a" left.
    assert coordinator.start("b", list(range(50, 66)), 16) == 0
    assert [len(m.find_longest_cache_hit(m_hashes, 24)) for m, m_hashes in _hits(coordinator, tokens)] == [6, 3]
    coordinator.free("b")
    assert coordinator.start("c", tokens[:14], 14) == 12
    assert [len(blocks) for blocks in coordinator.blocks_of("c")] == [4, 4]


def _hits(coordinator: KVCacheCoordinator, tokens: list[int]) -> list[tuple[GroupManager, list[BlockHash]]]:
    found: list[tuple[GroupManager, list[BlockHash]]] = []
    for manager in coordinator.managers:
        hashes: list[BlockHash] = []
        extend_block_hashes(hashes, tokens, manager.block_size)
        found.append((manager, hashes))
    return found


def test_a_salt_keeps_prefixes_apart() -> None:
    coordinator = coordinator_of({4: 20})
    tokens = list(range(9))
    assert coordinator.start("a", tokens, 9, cache_salt=b"one") == 0
    coordinator.cache_blocks("a", tokens, 9)
    assert coordinator.start("b", tokens, 9) == 0
    assert coordinator.start("c", tokens, 9, cache_salt=b"two") == 0
    assert coordinator.start("d", tokens, 9, cache_salt=b"one") == 8


def test_a_hit_on_free_blocks_counts_them() -> None:
    coordinator = coordinator_of({4: 4})
    tokens = list(range(12))
    assert coordinator.start("a", tokens, 12) == 0
    coordinator.cache_blocks("a", tokens, 12)
    coordinator.free("a")
    # The hit takes two of the three free blocks, so one is left: enough for 12 tokens, not for 13.
    assert coordinator.start("b", [*tokens[:8], *range(90, 95)], 5) is None
    assert free_blocks(coordinator) == [3]
    assert coordinator.start("b", [*tokens[:8], *range(90, 94)], 4) == 8


def test_blocks_needed_and_had() -> None:
    coordinator = coordinator_of({4: 10, 6: 5})
    first, second = coordinator.blocks_needed(30)
    assert (first.groups, first.unit, first.needed, first.available, first.fits) == (
        (0,),
        "blocks of 4 tokens",
        8,
        9,
        True,
    )
    assert (second.groups, second.needed, second.available, second.fits) == ((1,), 5, 4, False)
    with pytest.raises(OutOfBlocksError, match=r"30 tokens needs 5 blocks of 6 tokens in group 1, whose pool has 4"):
        coordinator.check_fits(30)
    coordinator.check_fits(24)
    assert coordinator.max_requests(30) == 0
    assert coordinator.max_requests(12) == 2
    assert coordinator.max_requests(0) is None


def test_a_model_without_caches_needs_no_blocks() -> None:
    coordinator = KVCacheCoordinator([], enable_prefix_caching=True)
    assert coordinator.start("a", [1, 2, 3], 3) == 0
    assert coordinator.grow("a", 4)
    coordinator.cache_blocks("a", [1, 2, 3, 4], 4)
    assert coordinator.max_requests(100) is None
    coordinator.free("a")


def test_misuse_is_refused() -> None:
    coordinator = coordinator_of({4: 10})
    assert coordinator.start("a", [1, 2], 2) == 0
    with pytest.raises(ValueError, match="request 'a' was started already"):
        coordinator.start("a", [1, 2], 2)
    with pytest.raises(ValueError, match="request 'b' was not started"):
        coordinator.cache_blocks("b", [1, 2, 3, 4], 4)


def test_common_prefix_in_each_group() -> None:
    coordinator = coordinator_of({4: 20, 2: 20})
    tokens = list(range(9))
    for name in ("a", "b"):
        coordinator.start(name, tokens, 9)
        coordinator.cache_blocks(name, tokens, 9)
    assert coordinator.num_common_prefix_blocks(["a", "b"]) == [2, 4]
