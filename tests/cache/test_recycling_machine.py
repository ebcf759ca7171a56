"""Groups of every kind beside each other, in random sequences, against a model of what each block holds.

The model runs layers by what `seen_by` says a token attends over, and knows nothing of how managers do it. A block that
is read holds what the request itself would have computed; a request holds no more blocks than its spec says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hash_model import attention_spec, seen_by, state_spec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from window_specs import (
    chunk_spec,
    cross_spec,
    encoder_only_spec,
    latent_window_spec,
    rswa_spec,
    sink_spec,
    window_spec,
)

from genericbuilders.cache import (
    NULL_BLOCK,
    BlockPool,
    CrossAttentionManager,
    GroupManager,
    KVCacheCoordinator,
    RequestSize,
    SinkManager,
    make_manager,
)
from genericbuilders.config import EngineConfig
from genericbuilders.specs import CrossAttentionSpec, KVCacheSpec, MambaSpec, RSWASpec, SlidingWindowSpec

LONGEST, BUDGET, LONGEST_ENCODER = 22, 6, 10
CONFIG = EngineConfig(max_model_len=LONGEST, max_num_batched_tokens=BUDGET)
# What a token's keys and values follow from: who computed them, all tokens up to it, and what they saw.
Content = tuple[object, ...]

SETUPS: list[list[KVCacheSpec]] = [
    [window_spec(5)],
    [window_spec(8, 2, extra=3)],
    [chunk_spec(6, 4)],
    [attention_spec(2), window_spec(5, 4)],
    [window_spec(7, 3), window_spec(4, 2), attention_spec(1)],
    [attention_spec(4), chunk_spec(5, 2)],
    [chunk_spec(8, 4), window_spec(3, 1), latent_window_spec(6, 2)],
    [sink_spec(3, 2), window_spec(5, 2)],
    [state_spec("align", 4), window_spec(4, 2), chunk_spec(4, 4)],
    [state_spec("all", 2), chunk_spec(3, 2)],
    [rswa_spec(3, 2)],
    [rswa_spec(4, 4), attention_spec(2), window_spec(3, 2)],
    [cross_spec(4, LONGEST_ENCODER), window_spec(4, 2)],
    [encoder_only_spec(), attention_spec(4)],
]


@dataclass
class Served:
    tokens: list[int]
    size: RequestSize
    computed: int

    @property
    def prompt(self) -> int:
        assert self.size.num_prompt_tokens is not None
        return self.size.num_prompt_tokens


class RecyclingAgainstModel(RuleBasedStateMachine):
    specs: Sequence[KVCacheSpec] = ()

    @initialize(shared=st.booleans(), requests=st.integers(1, 3), caching=st.sampled_from([True, True, True, False]))
    def begin(self, shared: bool, requests: int, caching: bool) -> None:
        specs = self.specs
        counts = [1 + spec.num_shared_blocks + max(1, requests * spec.max_resident_blocks(CONFIG)) for spec in specs]
        together = BlockPool(sum(counts))
        self.managers: list[GroupManager] = [
            make_manager(spec, together if shared else BlockPool(count), CONFIG)
            for spec, count in zip(specs, counts, strict=True)
        ]
        self.cleared: list[tuple[int, list[int]]] = []
        self.coordinator = KVCacheCoordinator(
            self.managers,
            enable_prefix_caching=caching,
            clear=lambda group, blocks: self.cleared.append((group, list(blocks))),
        )
        self.shared = shared and len(specs) > 1
        self.running: dict[str, Served] = {}
        self.past: list[Served] = []
        self.count = 0
        # What was last written to each place; a state is at offset 0.
        self.content: dict[tuple[BlockPool, int, int], Content] = {}
        for group, manager in enumerate(self.managers):
            if isinstance(manager, SinkManager):
                for block in manager.sink_blocks:
                    self.content[manager.pool, block, 0] = ("sink", group)

    def meaning(self, group: int, request: Served, position: int) -> Content:
        """What a layer stores for a token: where some layer sees a prompt otherwise than the rest, its end counts."""
        seen: object = None
        if position >= request.prompt and any(isinstance(spec, RSWASpec) for spec in self.specs):
            seen = request.prompt
        return (group, tuple(request.tokens[: position + 1]), seen)

    def column(self, group: int, name: str, position: int) -> int:
        spec = self.specs[group]
        if isinstance(spec, MambaSpec) and spec.mamba_cache_mode == "none":
            return self.managers[group].blocks_of(name)[0]
        block = self.managers[group].blocks_of(name)[spec.num_shared_blocks + position // spec.block_size]
        assert block != NULL_BLOCK
        return block

    def run(self, name: str, stop: int) -> None:
        request = self.running[name]
        self.past = [*self.past[-3:], request]
        for group, (spec, manager) in enumerate(zip(self.specs, self.managers, strict=True)):
            held = [block for block in manager.blocks_of(name)[spec.num_shared_blocks :] if block != NULL_BLOCK]
            assert len(held) <= spec.max_resident_blocks(CONFIG)
            assert len(held) <= manager.blocks_for_longest(len(request.tokens), request.size)
            if isinstance(manager, CrossAttentionManager):
                self.cross(group, name)
            elif isinstance(spec, MambaSpec):
                self.step_states(group, spec, name, stop)
            elif held:
                self.attend(group, spec, name, stop)
        request.computed = stop
        self.coordinator.cache_blocks(name, request.tokens, stop)

    def attend(self, group: int, spec: KVCacheSpec, name: str, stop: int) -> None:
        request, manager = self.running[name], self.managers[group]
        for index, block in enumerate(manager.blocks_of(name)[: spec.num_shared_blocks]):
            assert isinstance(manager, SinkManager)
            assert block == manager.sink_blocks[index]
            assert self.content[manager.pool, block, 0] == ("sink", group)
        for position in range(request.computed, stop):
            block = self.column(group, name, position)
            # Nobody else may read what is written over, and what was found by its hash must stay as it is.
            assert manager.pool.ref_count(block) == 1
            assert manager.pool.block_hash(block) is None
            self.content[manager.pool, block, position % spec.block_size] = self.meaning(group, request, position)
        for position in range(request.computed, stop):
            for seen in self.read(spec, position, request.prompt):
                block = self.column(group, name, seen)
                found = self.content[manager.pool, block, seen % spec.block_size]
                assert found == self.meaning(group, request, seen)

    def read(self, spec: KVCacheSpec, position: int, prompt: int) -> list[int]:
        seen = seen_by(spec, position, prompt)
        extra = spec.extra_retained_tokens if isinstance(spec, SlidingWindowSpec) else 0
        return [*range(max(0, seen[0] - extra), seen[0]), *seen]

    def step_states(self, group: int, spec: MambaSpec, name: str, stop: int) -> None:
        request, pool, size = self.running[name], self.managers[group].pool, spec.block_size
        if request.computed:
            last = request.computed - 1
            assert self.content[pool, self.column(group, name, last), 0] == self.meaning(group, request, last)
        ends = [stop]
        if spec.mamba_cache_mode == "all":
            ends = [end for end in range(request.computed + 1, stop + 1) if end % size == 0 or end == stop]
        for end in ends:
            block = self.column(group, name, end - 1)
            assert pool.ref_count(block) == 1
            assert pool.block_hash(block) is None
            self.content[pool, block, 0] = self.meaning(group, request, end - 1)

    def cross(self, group: int, name: str) -> None:
        request, manager = self.running[name], self.managers[group]
        row = manager.blocks_of(name)
        assert len(row) == -(-request.size.num_encoder_tokens // manager.block_size)
        for block in row:
            if not request.computed:
                self.content[manager.pool, block, 0] = ("encoder", name)
            assert self.content[manager.pool, block, 0] == ("encoder", name)

    def is_there(self, group: int, request: Served, length: int) -> bool:
        """Whether blocks that can be found hold all that the token behind ``length`` tokens reads of them."""
        spec, pool = self.specs[group], self.managers[group].pool
        if isinstance(spec, MambaSpec):
            wanted = [[(0, self.meaning(group, request, length - 1))]]
        else:
            size = spec.block_size
            columns = {at // size for at in self.read(spec, length, request.prompt) if at < length}
            wanted = [
                [(offset, self.meaning(group, request, column * size + offset)) for offset in range(size)]
                for column in columns
            ]
        return all(
            any(
                pool.block_hash(block) is not None
                and all(self.content.get((pool, block, offset)) == content for offset, content in cells)
                for block in range(1, pool.num_blocks)
            )
            for cells in wanted
        )

    def longest_known(self, request: Served) -> int:
        if not self.coordinator.enable_prefix_caching:
            return 0
        step = math.lcm(*(spec.block_size for spec in self.specs))
        limit = len(request.tokens) - 1
        if any(isinstance(spec, RSWASpec) for spec in self.specs):
            limit = min(limit, request.prompt)
        lengths = range(limit // step * step, 0, -step)
        groups = range(len(self.specs))
        return next((n for n in lengths if all(self.is_there(group, request, n) for group in groups)), 0)

    def free_blocks(self) -> list[list[int]]:
        return [pool.free_block_ids() for pool in self.coordinator.pools]

    def try_start(self, name: str, request: Served, budget: int) -> None:
        expected = self.longest_known(request)
        before, self.cleared = self.free_blocks(), []
        hit = self.coordinator.start(name, request.tokens, budget, size=request.size)
        if hit is None:
            assert self.free_blocks() == before
            assert not any(self.coordinator.blocks_of(name))
            # Alone, a request always finds blocks.
            assert self.running
            return
        assert hit == expected
        request.computed = hit
        self.running[name] = request
        self.check_cleared(name, hit)
        self.run(name, hit + self.coordinator.max_piece(hit, min(len(request.tokens) - hit, budget)))

    def check_cleared(self, name: str, hit: int) -> None:
        """In a pool that groups share, just the blocks that were taken are cleared: no hit's, and no sink's."""
        expected: list[tuple[int, list[int]]] = []
        for group, (spec, manager) in enumerate(zip(self.specs, self.managers, strict=True)):
            first = spec.num_shared_blocks + (
                0 if isinstance(manager, CrossAttentionManager) else hit // spec.block_size
            )
            new = [block for block in manager.blocks_of(name)[first:] if block != NULL_BLOCK]
            expected += [(group, new)] if new else []
        assert self.cleared == (expected if self.shared else [])

    @rule(
        tokens=st.lists(st.integers(0, 1), min_size=1, max_size=14),
        budget=st.integers(1, BUDGET),
        like=st.integers(0, 4),
        encoder=st.integers(0, LONGEST_ENCODER),
    )
    def start(self, tokens: list[int], budget: int, like: int, encoder: int) -> None:
        """Start a request, perhaps on the tokens of one that was there before: prompt and output."""
        if like < len(self.past):
            tokens = [*self.past[-1 - like].tokens, *tokens][: max(14, len(tokens))]
        self.count += 1
        encoder = encoder if any(isinstance(spec, CrossAttentionSpec) for spec in self.specs) else 0
        self.try_start(f"r{self.count}", Served(tokens, RequestSize(len(tokens), encoder), 0), budget)

    @precondition(lambda self: bool(self.running))
    @rule(
        data=st.data(),
        more=st.lists(st.integers(0, 1), min_size=1, max_size=9),
        budget=st.integers(1, BUDGET),
        pieces=st.integers(1, 5),
    )
    def grow(self, data: st.DataObject, more: list[int], budget: int, pieces: int) -> None:
        """Feed a request some pieces, of what it has or of what it generates."""
        name = data.draw(st.sampled_from(sorted(self.running)))
        request = self.running[name]
        for _ in range(pieces):
            if len(request.tokens) == request.computed:
                request.tokens = [*request.tokens, *more][:LONGEST]
            if len(request.tokens) > request.computed:
                self.feed(name, request, min(len(request.tokens) - request.computed, budget))

    def feed(self, name: str, request: Served, wanted: int) -> None:
        count = self.coordinator.max_piece(request.computed, wanted)
        before, rows = self.free_blocks(), [list(row) for row in self.coordinator.blocks_of(name)]
        needs = [manager.num_new_blocks_needed(name, request.computed + count) for manager in self.managers]
        returns = [manager.num_given_back(name, request.computed + count) for manager in self.managers]
        if not self.coordinator.grow(name, request.computed + count):
            assert self.free_blocks() == before
            assert [list(row) for row in self.coordinator.blocks_of(name)] == rows
            assert len(self.running) > 1
            return
        if any(needs):
            after = sum(len(blocks) for blocks in self.free_blocks())
            assert after == sum(len(blocks) for blocks in before) - sum(needs) + sum(returns)
        self.run(name, request.computed + count)

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        self.coordinator.free(name)
        del self.running[name]

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data(), budget=st.integers(1, BUDGET))
    def preempt_and_resume(self, data: st.DataObject, budget: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        request = self.running.pop(name)
        self.coordinator.free(name)
        self.try_start(name, replace(request, computed=0), budget)

    @precondition(lambda self: not self.running)
    @rule()
    def reset(self) -> None:
        assert self.coordinator.reset_prefix_cache()

    @invariant()
    def rows_are_right(self) -> None:
        for name, request in self.running.items():
            for spec, manager in zip(self.specs, self.managers, strict=True):
                row = manager.blocks_of(name)
                if not isinstance(spec, MambaSpec | CrossAttentionSpec) and spec.max_resident_blocks(CONFIG):
                    assert len(row) == spec.num_shared_blocks + -(-request.computed // spec.block_size)
                if not row or isinstance(spec, MambaSpec):
                    continue
                kept = spec.num_shared_blocks + manager.num_kept_columns(name)
                live = [block != NULL_BLOCK for block in row]
                assert all(live[:kept])
                assert live[kept:] == sorted(live[kept:])
                if request.computed < LONGEST and not isinstance(spec, CrossAttentionSpec):
                    # Not one block more than the next token and those behind it read.
                    needed = [n // spec.block_size for n in self.read(spec, request.computed, request.prompt)]
                    first = min((n for n in needed if n >= kept - spec.num_shared_blocks), default=len(row))
                    assert live[spec.num_shared_blocks :] == [
                        column < kept - spec.num_shared_blocks or column >= first
                        for column in range(len(row) - spec.num_shared_blocks)
                    ]

    @invariant()
    def every_block_is_counted(self) -> None:
        for pool in self.coordinator.pools:
            held: list[int] = []
            reserved: Sequence[int] = ()
            for spec, manager in zip(self.specs, self.managers, strict=True):
                if manager.pool is pool:
                    rows = [manager.blocks_of(name)[spec.num_shared_blocks :] for name in self.running]
                    held += [block for row in rows for block in row if block != NULL_BLOCK]
                    reserved = manager.sink_blocks if isinstance(manager, SinkManager) else reserved
            for block in range(1, pool.num_blocks):
                assert pool.ref_count(block) == (1 if block in reserved else held.count(block))
                assert block not in reserved or pool.block_hash(block) is None
            assert pool.num_usable_blocks == pool.num_blocks - 1 - len(reserved)
            assert pool.num_free_blocks == pool.num_usable_blocks - len(set(held))

    def teardown(self) -> None:
        for name in list(self.running):
            self.coordinator.free(name)
        for pool in self.coordinator.pools:
            assert pool.num_free_blocks == pool.num_usable_blocks == len(pool.free_block_ids())


@pytest.mark.parametrize("given", SETUPS, ids=lambda specs: "+".join(type(spec).__name__[:-4] for spec in specs))
def test_blocks_hold_what_is_read_and_no_more_are_held(given: list[KVCacheSpec]) -> None:
    class Machine(RecyclingAgainstModel):
        specs = given

    run_state_machine_as_test(Machine, settings=settings(max_examples=30, stateful_step_count=25, deadline=None))
