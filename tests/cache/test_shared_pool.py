"""Groups that take their blocks from one pool."""

from __future__ import annotations

import pytest
from hash_model import attention_spec

from genericbuilders.cache import BlockPool, KVCacheCoordinator, OutOfBlocksError, make_manager


def test_groups_of_one_pool_share_its_blocks() -> None:
    pool = BlockPool(10)
    cleared: list[tuple[int, list[int]]] = []
    coordinator = KVCacheCoordinator(
        [make_manager(attention_spec(4), pool), make_manager(attention_spec(4), pool)],
        enable_prefix_caching=True,
        clear=lambda group, blocks: cleared.append((group, list(blocks))),
    )
    assert coordinator.pools == (pool,)
    (need,) = coordinator.blocks_needed(17)
    assert (need.groups, need.where, need.unit, need.needed, need.available) == (
        (0, 1),
        "groups 0 and 1",
        "blocks",
        10,
        9,
    )
    with pytest.raises(OutOfBlocksError, match="17 tokens needs 10 blocks in groups 0 and 1, whose pool has 9"):
        coordinator.check_fits(17)
    assert coordinator.max_requests(8) == 2
    tokens = list(range(17))
    # Each group alone would find five blocks; together they do not.
    assert coordinator.start("a", tokens, 17) is None
    assert (pool.num_free_blocks, cleared) == (9, [])
    assert coordinator.start("a", tokens[:9], 8) == 0
    assert coordinator.blocks_of("a") == [[1, 2], [3, 4]]
    assert cleared == [(0, [1, 2]), (1, [3, 4])]
    coordinator.cache_blocks("a", tokens, 8)
    # Equal tokens, but another group's pages: each finds its own.
    assert pool.num_cached_blocks == 4
    assert coordinator.start("b", tokens[:10], 10) == 8
    assert coordinator.blocks_of("b") == [[1, 2, 5], [3, 4, 6]]
    assert cleared[2:] == [(0, [5]), (1, [6])]
    assert not coordinator.grow("b", 17)
    assert not coordinator.reset_prefix_cache()
    coordinator.free("a")
    coordinator.free("b")
    assert coordinator.reset_prefix_cache()
    assert pool.num_free_blocks == 9


def test_blocks_of_a_pool_of_ones_own_are_not_cleared() -> None:
    cleared: list[int] = []
    coordinator = KVCacheCoordinator(
        [make_manager(attention_spec(4), BlockPool(9)), make_manager(attention_spec(4), BlockPool(9))],
        enable_prefix_caching=False,
        clear=lambda group, blocks: cleared.append(group),
    )
    assert coordinator.start("a", [1, 2], 2) == 0
    assert cleared == []
