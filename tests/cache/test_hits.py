"""Hits that several groups agree on: the longest there is, found without looking at a block twice."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hash_model import attention_spec, seen_by, state_spec
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override
from window_specs import chunk_spec, window_spec

from genericbuilders.cache import (
    NULL_BLOCK,
    BlockHash,
    BlockPool,
    GroupManager,
    KVCacheCoordinator,
    extend_block_hashes,
    make_manager,
)
from genericbuilders.specs import KVCacheSpec, MambaSpec

SIZES = st.sampled_from([1, 2, 3, 4])
SPECS: st.SearchStrategy[KVCacheSpec] = st.one_of(
    st.builds(attention_spec, SIZES),
    st.builds(window_spec, st.integers(1, 9), SIZES),
    st.builds(chunk_spec, st.integers(1, 9), SIZES),
    st.builds(state_spec, st.sampled_from(["align", "all"]), SIZES),
)


class CountingPool(BlockPool):
    """Counts how often each hash is looked up."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.lookups: Counter[BlockHash] = Counter()

    @override
    def find(self, block_hash: BlockHash) -> int | None:
        self.lookups[block_hash] += 1
        return super().find(block_hash)


def hashes_of(tokens: list[int], block_size: int) -> list[BlockHash]:
    hashes: list[BlockHash] = []
    extend_block_hashes(hashes, tokens, block_size)
    return hashes


def group_of(spec: KVCacheSpec, tokens: list[int], columns: set[int]) -> tuple[GroupManager, CountingPool]:
    """A group in whose pool just these columns of ``tokens`` are found."""
    pool = CountingPool(2 * len(tokens) + 2)
    hashes = hashes_of(tokens, spec.block_size)
    for column, block_hash in enumerate(hashes):
        (block,) = pool.get_new_blocks(1)
        if column in columns:
            pool.cache_block(block, block_hash)
        pool.free_blocks([block])
    return make_manager(spec, pool), pool


def is_hit(spec: KVCacheSpec, columns: set[int], length: int) -> bool:
    if length % spec.block_size:
        return False
    if isinstance(spec, MambaSpec):
        return length // spec.block_size - 1 in columns
    return {at // spec.block_size for at in seen_by(spec, length, 99) if at < length} <= columns


@given(spec=SPECS, num_tokens=st.integers(1, 30), limit=st.integers(0, 30), data=st.data())
def test_every_hit_is_listed_the_longest_first(
    spec: KVCacheSpec, num_tokens: int, limit: int, data: st.DataObject
) -> None:
    tokens, size = list(range(num_tokens)), spec.block_size
    columns = set(data.draw(st.lists(st.integers(0, 29), max_size=30)))
    if data.draw(st.booleans()):
        columns = set(range(30)) - columns
    manager, pool = group_of(spec, tokens, columns)
    hashes = hashes_of(tokens, size)
    expected = [length // size for length in range(min(num_tokens, limit), 0, -1) if is_hit(spec, columns, length)]
    assert list(manager.hit_lengths(hashes, limit // size)) == expected
    assert max(pool.lookups.values(), default=0) <= 1
    row = manager.find_longest_cache_hit(hashes, limit)
    assert len(row) == (expected[0] if expected else 0)
    for column, block in enumerate(row):
        assert block in (NULL_BLOCK, pool.find(hashes[column]))
    if row and not isinstance(spec, MambaSpec):
        needed = {at // size for at in seen_by(spec, len(row) * size, 99) if at < len(row) * size}
        assert {column for column, block in enumerate(row) if block != NULL_BLOCK} == needed


@given(specs=st.lists(SPECS, min_size=1, max_size=4), num_tokens=st.integers(1, 40), data=st.data())
def test_groups_agree_on_the_longest_common_hit(specs: list[KVCacheSpec], num_tokens: int, data: st.DataObject) -> None:
    tokens = list(range(num_tokens))
    known: list[set[int]] = []
    for _ in specs:
        missing = data.draw(st.sets(st.integers(0, 39), max_size=4))
        known.append(set(range(40)) - missing)
    groups = [group_of(spec, tokens, columns) for spec, columns in zip(specs, known, strict=True)]
    coordinator = KVCacheCoordinator([manager for manager, _ in groups], enable_prefix_caching=True)
    step = math.lcm(*(spec.block_size for spec in specs))
    expected = next(
        (
            length
            for length in range((num_tokens - 1) // step * step, 0, -step)
            if all(is_hit(spec, columns, length) for spec, columns in zip(specs, known, strict=True))
        ),
        0,
    )
    assert coordinator.start("a", tokens, num_tokens) == expected
    for _, pool in groups:
        # Once to find the hit, and once more to take its blocks.
        assert max(pool.lookups.values(), default=0) <= 2


@pytest.mark.parametrize(
    "others", [[window_spec(2_000, 1)], [attention_spec(1)], [window_spec(2_000, 1), attention_spec(1)]]
)
def test_groups_that_disagree_everywhere_cost_no_more_than_their_blocks(others: list[KVCacheSpec]) -> None:
    # The state group knows each prefix of an even length, and the chunks those of odd lengths only: none in common.
    num_tokens = 4_001
    tokens = list(range(num_tokens))
    every = set(range(num_tokens))
    odd = {column for column in every if column % 2 == 0}
    groups = [
        group_of(state_spec("align", 1), tokens, every - odd),
        group_of(state_spec("align", 1), tokens, odd),
        *(group_of(spec, tokens, every) for spec in others),
    ]
    coordinator = KVCacheCoordinator([manager for manager, _ in groups], enable_prefix_caching=True)
    assert coordinator.start("a", tokens, 10) == 0
    for _, pool in groups:
        assert pool.lookups.total() <= num_tokens
