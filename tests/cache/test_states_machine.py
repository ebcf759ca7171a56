"""Groups of states, beside others, in random sequences: what each block holds is what its finders need."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hash_model import attention_spec, state_spec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from genericbuilders.cache import NULL_BLOCK, BlockPool, GroupManager, KVCacheCoordinator, MambaManager, make_manager
from genericbuilders.specs import MambaCacheMode

MODES: tuple[MambaCacheMode, ...] = ("none", "align", "all")
State = tuple[int, ...]


@dataclass
class Setup:
    mode: MambaCacheMode
    block_size: int
    num_states: int
    # A second state group of another block size, and a group of full attention; 0 for none.
    other_block_size: int = 0
    attention_block_size: int = 0
    # Whether all groups take their blocks from one pool.
    shared: bool = False


class Kernel:
    """What a layer does with its states, by the contract: each block holds the tokens that its state stands for.

    ``content`` has, for each block of the pool, the group that wrote it last, and that group's state.
    """

    def __init__(self, group: int, manager: MambaManager, content: dict[int, tuple[int, State]]) -> None:
        self.group = group
        self.manager = manager
        self.content = content

    def run(self, name: str, tokens: list[int], computed: int, stop: int) -> None:
        manager, row = self.manager, self.manager.blocks_of(name)
        size = manager.block_size
        if manager.mode == "none":
            first, stores = 0, {0: stop}
        else:
            first = (computed - 1) // size
            stores = {(stop - 1) // size: stop}
            if manager.mode == "all":
                stores |= {end // size - 1: end for end in range(size, stop + 1, size) if end > computed}
        if computed:
            assert row[first] != NULL_BLOCK
            assert self.content[row[first]] == (self.group, tuple(tokens[:computed]))
        for column, end in stores.items():
            block = row[column]
            assert block != NULL_BLOCK
            # Nobody else may read what is written over, and what was found by its hash must stay as it is.
            assert manager.pool.ref_count(block) == 1
            assert manager.pool.block_hash(block) is None
            self.content[block] = (self.group, tuple(tokens[:end]))

    def found(self, tokens: list[int], length: int) -> bool:
        pool = self.manager.pool
        return any(
            content == (self.group, tuple(tokens[:length])) and pool.block_hash(block) is not None
            for block, content in self.content.items()
        )


class StatesAgainstModel(RuleBasedStateMachine):
    """A coordinator with one or two groups of states, and perhaps one of attention, beside a model of what each holds."""

    @initialize(
        setup=st.sampled_from(
            [
                *(Setup(mode, 3, 6) for mode in MODES),
                Setup("align", 4, 7, attention_block_size=2),
                Setup("align", 3, 8, attention_block_size=2),
                Setup("align", 2, 9, other_block_size=3),
                Setup("all", 4, 12, attention_block_size=2),
                Setup("none", 4, 3, attention_block_size=2),
                Setup("align", 4, 14, attention_block_size=4, shared=True),
                Setup("all", 2, 26, other_block_size=2, attention_block_size=2, shared=True),
            ]
        )
    )
    def begin(self, setup: Setup) -> None:
        self.setup = setup
        sizes = [setup.block_size, *([setup.other_block_size] if setup.other_block_size else [])]
        pool = BlockPool(setup.num_states)
        states = [
            make_manager(state_spec(setup.mode, size), pool if setup.shared else BlockPool(setup.num_states))
            for size in sizes
        ]
        self.content: dict[int, tuple[int, State]] = {}
        self.attention_content: dict[int, tuple[int, State]] = self.content if setup.shared else {}
        self.kernels = [
            Kernel(group, manager, self.content if setup.shared else {}) for group, manager in enumerate(states)
        ]
        self.attention = (
            make_manager(attention_spec(setup.attention_block_size), pool if setup.shared else BlockPool(16))
            if setup.attention_block_size
            else None
        )
        managers: list[GroupManager] = [*([self.attention] if self.attention else []), *states]
        self.coordinator = KVCacheCoordinator(managers, enable_prefix_caching=True)
        self.alignment = math.lcm(*(manager.block_size for manager in managers))
        self.running: dict[str, tuple[list[int], int]] = {}
        self.served: list[list[int]] = []
        self.count = 0

    def run(self, name: str, tokens: list[int], computed: int, count: int) -> None:
        for kernel in self.kernels:
            kernel.run(name, tokens, computed, computed + count)
        if self.attention is not None:
            size, row = self.attention.block_size, self.attention.blocks_of(name)
            for column in range(computed // size, -(-(computed + count) // size)):
                assert self.attention.pool.ref_count(row[column]) == 1
                end = min(computed + count, (column + 1) * size)
                self.attention_content[row[column]] = (-1, tuple(tokens[:end]))
        self.running[name] = (tokens, computed + count)
        self.served.append(tokens)
        self.coordinator.cache_blocks(name, tokens, computed + count)

    def longest_known(self, tokens: list[int]) -> int:
        if self.setup.mode == "none":
            return 0
        known = 0
        for length in range(self.alignment, len(tokens), self.alignment):
            if not self.attention_found(tokens, length):
                break
            if all(kernel.found(tokens, length) for kernel in self.kernels):
                known = length
        return known

    def attention_found(self, tokens: list[int], length: int) -> bool:
        if self.attention is None:
            return True
        pool, size = self.attention.pool, self.attention.block_size
        held = {content for block, content in self.attention_content.items() if pool.block_hash(block) is not None}
        return all((-1, tuple(tokens[:end])) in held for end in range(size, length + 1, size))

    @rule(
        tokens=st.lists(st.integers(0, 1), min_size=1, max_size=14),
        budget=st.integers(1, 14),
        like=st.integers(0, 3),
    )
    def start(self, tokens: list[int], budget: int, like: int) -> None:
        """Start a request, perhaps on the tokens of one that was there before."""
        if like < len(self.served):
            tokens = [*self.served[-1 - like], *tokens][:14]
        self.count += 1
        name = f"r{self.count}"
        expected = self.longest_known(tokens)
        before = [manager.pool.free_block_ids() for manager in self.coordinator.managers]
        hit = self.coordinator.start(name, tokens, budget)
        if hit is None:
            assert [manager.pool.free_block_ids() for manager in self.coordinator.managers] == before
            assert not any(self.coordinator.blocks_of(name))
            return
        assert hit == expected
        count = self.coordinator.max_piece(hit, min(len(tokens) - hit, budget))
        assert 1 <= count <= budget
        self.run(name, tokens, hit, count)

    @precondition(lambda self: bool(self.running))
    @rule(
        data=st.data(),
        more=st.lists(st.integers(0, 1), min_size=1, max_size=8),
        wanted=st.integers(1, 9),
        cut=st.booleans(),
    )
    def grow(self, data: st.DataObject, more: list[int], wanted: int, cut: bool) -> None:
        """Feed a piece: cut as the engine does, or not, as a caller might that knows nothing of blocks."""
        name = data.draw(st.sampled_from(sorted(self.running)))
        tokens, computed = self.running[name]
        # The smallest pool of all holds one request of 15 tokens.
        tokens = tokens if len(tokens) > computed else [*tokens, *more][:15]
        if len(tokens) == computed:
            return
        wanted = min(wanted, len(tokens) - computed)
        count = self.coordinator.max_piece(computed, wanted) if cut else wanted
        assert 1 <= count <= wanted
        before = [manager.pool.free_block_ids() for manager in self.coordinator.managers]
        columns = [list(row) for row in self.coordinator.blocks_of(name)]
        if not self.coordinator.grow(name, computed + count):
            assert [manager.pool.free_block_ids() for manager in self.coordinator.managers] == before
            assert [list(row) for row in self.coordinator.blocks_of(name)] == columns
            # Alone, a request always finds blocks: the pools are larger than any request.
            assert len(self.running) > 1
            return
        self.run(name, tokens, computed, count)

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
        tokens, _ = self.running.pop(name)
        self.coordinator.free(name)
        expected = self.longest_known(tokens)
        hit = self.coordinator.start(name, tokens, len(tokens))
        if hit is not None:
            assert hit == expected
            self.run(name, tokens, hit, self.coordinator.max_piece(hit, len(tokens) - hit))

    @invariant()
    def rows_are_right(self) -> None:
        for kernel in self.kernels:
            manager = kernel.manager
            for name, (_, computed) in self.running.items():
                row = manager.blocks_of(name)
                live = [block for block in row if block != NULL_BLOCK]
                if manager.mode == "none":
                    assert len(row) == len(live) == 1
                    continue
                assert len(row) == -(-computed // manager.block_size)
                assert row[-1] != NULL_BLOCK
                if manager.mode == "align":
                    assert len(live) <= 2
                else:
                    assert NULL_BLOCK not in row[row.index(live[0]) :]

    @invariant()
    def every_block_is_counted(self) -> None:
        for pool in self.coordinator.pools:
            held = [
                block
                for manager in self.coordinator.managers
                if manager.pool is pool
                for name in self.running
                for block in manager.blocks_of(name)
                if block != NULL_BLOCK
            ]
            for block in range(1, pool.num_blocks):
                assert pool.ref_count(block) == held.count(block)
            assert pool.num_free_blocks == pool.num_usable_blocks - len(set(held))
            if self.setup.mode == "none":
                assert pool.num_cached_blocks == 0

    def teardown(self) -> None:
        for name in list(self.running):
            self.coordinator.free(name)
        for manager in self.coordinator.managers:
            assert sorted(manager.pool.free_block_ids()) == list(range(1, manager.pool.num_blocks))


TestStatesAgainstModel = StatesAgainstModel.TestCase
TestStatesAgainstModel.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
