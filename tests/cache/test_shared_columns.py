"""Managers whose columns do not simply follow a request's tokens: sinks, reference windows, encoders, no cache."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hash_model import attention_spec
from window_specs import chunk_spec, cross_spec, encoder_only_spec, rswa_spec, sink_spec, window_spec

from genericbuilders.cache import (
    NULL_BLOCK,
    BlockHash,
    BlockPool,
    ChunkedLocalManager,
    CrossAttentionManager,
    EncoderOnlyManager,
    FullAttentionManager,
    KVCacheCoordinator,
    NoManagerError,
    OutOfBlocksError,
    RequestSize,
    RSWAManager,
    SinkManager,
    SlidingWindowManager,
    extend_block_hashes,
    make_manager,
)
from genericbuilders.config import EngineConfig
from genericbuilders.specs import KVCacheSpec, UniformTypeKVCacheSpecs

CONFIG = EngineConfig(max_model_len=64, max_num_batched_tokens=6)


def hashes_of(tokens: list[int], block_size: int) -> list[BlockHash]:
    hashes: list[BlockHash] = []
    extend_block_hashes(hashes, tokens, block_size)
    return hashes


def live(row: Sequence[int]) -> list[int]:
    return [column for column, block in enumerate(row) if block != NULL_BLOCK]


def test_sinks_stand_in_front_of_every_row_and_are_nobody_s() -> None:
    pool = BlockPool(9)
    sinks = make_manager(sink_spec(5), pool)
    assert sinks.sink_blocks == (1, 2)
    assert pool.num_usable_blocks == pool.num_free_blocks == 6
    assert list(sinks.blocks_of("a")) == []
    tokens = list(range(9))
    sinks.allocate("a", 9)
    assert sinks.blocks_of("a") == (1, 2, 3, 4, 5)
    sinks.cache_full_blocks("a", hashes_of(tokens, 4), 9)
    assert [pool.block_hash(block) is not None for block in (1, 2, 3, 4, 5)] == [False, False, True, True, False]
    hit = sinks.find_longest_cache_hit(hashes_of(tokens, 4), 8)
    assert hit == [3, 4]
    assert sinks.num_new_blocks_needed("b", 9, hit) == 1
    sinks.adopt("b", hit)
    sinks.allocate("b", 9)
    assert sinks.blocks_of("b") == (1, 2, 3, 4, 6)
    assert sinks.num_common_prefix_blocks(["a", "b"]) == 4
    assert sinks.blocks_for_longest(9) == 3
    sinks.free("a")
    sinks.free("b")
    assert pool.num_free_blocks == 6
    assert pool.reset_prefix_cache()
    for block in sinks.sink_blocks:
        with pytest.raises(ValueError, match=f"block {block} is reserved; no request holds it"):
            pool.free_blocks([block])
    with pytest.raises(OutOfBlocksError, match="7 blocks were asked for, but 6 of 6 are free"):
        sinks.allocate("c", 28)
    with pytest.raises(OutOfBlocksError, match="2 blocks were to be reserved, but 2 of 2 are free, and one must be"):
        make_manager(sink_spec(5), BlockPool(3))


def test_case_26_sinks_are_kept_beside_full_attention_and_beside_other_sinks() -> None:
    pool = BlockPool(40)
    specs: list[KVCacheSpec] = [attention_spec(), sink_spec(4), sink_spec(6)]
    cleared: list[int] = []
    coordinator = KVCacheCoordinator(
        [make_manager(spec, pool) for spec in specs],
        enable_prefix_caching=True,
        clear=lambda group, blocks: cleared.extend(blocks),
    )
    assert [type(manager) for manager in coordinator.managers] == [FullAttentionManager, SinkManager, SinkManager]
    (need,) = coordinator.blocks_needed(8)
    assert (need.needed, need.available) == (6, 36)
    assert coordinator.start("a", list(range(8)), 8) == 0
    full, first, second = coordinator.blocks_of("a")
    assert (list(full), list(first), list(second)) == ([4, 5], [1, 6, 7], [2, 3, 8, 9])
    # What the model wrote for all requests is not cleared when one of them starts.
    assert cleared == [4, 5, 6, 7, 8, 9]
    coordinator.free("a")
    assert coordinator.reset_prefix_cache()
    wrapped = UniformTypeKVCacheSpecs.from_specs({"a": sink_spec(4), "b": sink_spec(4)})
    assert wrapped is not None
    assert isinstance(make_manager(wrapped, BlockPool(9)), SinkManager)


def rswa(window: int, block_size: int = 4, num_blocks: int = 20) -> RSWAManager:
    return make_manager(rswa_spec(window, block_size), BlockPool(num_blocks), CONFIG)


def test_a_reference_window_keeps_the_prompt_and_the_last_generated_tokens() -> None:
    manager = rswa(3, block_size=2)
    manager.begin("a", RequestSize(5))
    steps: list[list[int]] = []
    for stop in range(5, 16):
        manager.allocate("a", stop)
        manager.give_back("a", stop)
        steps.append(live(manager.blocks_of("a")))
    assert manager.num_kept_columns("a") == 3
    # The prompt ends in column 2, which token 5 fills; the token behind 9 tokens reads 7, 8, 9: columns 3 and 4.
    assert steps[:5] == [[0, 1, 2], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
    # Behind 10 it reads 8, 9, 10; behind 15, 13 to 15.
    assert steps[5:8] == [[0, 1, 2, 4], [0, 1, 2, 4, 5], [0, 1, 2, 5]]
    assert steps[-1] == [0, 1, 2, 6, 7]
    assert manager.num_common_prefix_blocks(["a"]) == 3
    manager.free("a")
    assert manager.pool.num_free_blocks == 19
    # A request of the same name whose prompt is not told is kept whole.
    manager.allocate("a", 14)
    manager.give_back("a", 14)
    assert live(manager.blocks_of("a")) == list(range(7))


def test_the_blocks_of_a_reference_window_are_counted_before_it_starts() -> None:
    manager = rswa(3, block_size=2)
    # Two of the prompt, and of 2 + 6 tokens wherever they start: five.
    assert manager.blocks_for_longest(60, RequestSize(4)) == 7
    assert manager.blocks_for_longest(9, RequestSize(4)) == 5
    assert manager.blocks_for_longest(60) == manager.blocks_for_longest(60, RequestSize(60)) == 30
    most = 0
    manager.begin("a", RequestSize(4))
    for stop in (4, *range(10, 61, 6), 60):
        manager.allocate("a", stop)
        most = max(most, len(live(manager.blocks_of("a"))))
        manager.give_back("a", stop)
    assert most <= 7


def test_nothing_is_known_of_a_request_that_found_no_blocks() -> None:
    manager = rswa(2, num_blocks=3)
    coordinator = KVCacheCoordinator([manager], enable_prefix_caching=True)
    assert coordinator.start("a", list(range(10)), 10, size=RequestSize(6)) is None
    assert manager.num_kept_columns("a") == 0
    assert coordinator.start("a", list(range(5)), 5) == 0


def test_what_was_generated_is_never_another_s_prompt() -> None:
    # A generated token saw less than the same token of a prompt, so what layers stored for it is something else.
    specs: list[KVCacheSpec] = [attention_spec(2), rswa_spec(2, 2)]
    coordinator = KVCacheCoordinator([make_manager(spec, BlockPool(40)) for spec in specs], enable_prefix_caching=True)
    tokens = list(range(12))
    assert coordinator.start("a", tokens[:5], 5, size=RequestSize(5)) == 0
    for stop in range(5, 13):
        assert coordinator.grow("a", stop)
        coordinator.cache_blocks("a", tokens[:stop], stop)
    assert [manager.pool.num_cached_blocks for manager in coordinator.managers] == [2, 2]
    assert coordinator.start("b", tokens, 12, size=RequestSize(12)) == 4
    coordinator.cache_blocks("b", tokens, 12)
    # And what was a prompt's is not taken for generated tokens, though "a" comes back with all of its own.
    coordinator.free("a")
    assert coordinator.start("a", tokens, 12, size=RequestSize(5)) == 4
    assert coordinator.start("c", tokens, 12, size=RequestSize(12)) == 10
    for name in "abc":
        coordinator.free(name)
    assert [pool.num_free_blocks for pool in coordinator.pools] == [39, 39]


@pytest.mark.parametrize("full_first", [True, False])
def test_case_25_the_full_layer_keeps_its_blocks_in_both_orders(full_first: bool) -> None:
    full, windowed = attention_spec(4), rswa_spec(2, 4)
    assert UniformTypeKVCacheSpecs.from_specs({"a": full, "b": windowed}) is None
    assert UniformTypeKVCacheSpecs.from_specs({"b": windowed, "a": full}) is None
    order: list[KVCacheSpec] = [full, windowed] if full_first else [windowed, full]
    coordinator = KVCacheCoordinator([make_manager(spec, BlockPool(40)) for spec in order], enable_prefix_caching=True)
    by_type = {type(spec): manager for spec, manager in zip(order, coordinator.managers, strict=True)}
    keeps, recycles = by_type[type(full)], by_type[type(windowed)]
    assert (type(keeps), type(recycles)) == (FullAttentionManager, RSWAManager)
    tokens = list(range(40))
    assert coordinator.start("a", tokens[:6], 6, size=RequestSize(6)) == 0
    for stop in range(7, 41):
        coordinator.cache_blocks("a", tokens[: stop - 1], stop - 1)
        assert coordinator.grow("a", stop)
    assert live(keeps.blocks_of("a")) == list(range(10))
    assert live(recycles.blocks_of("a")) == [0, 1, 9]


def test_an_encoder_s_blocks_are_taken_once() -> None:
    pool = BlockPool(9)
    cross = make_manager(cross_spec(4), pool, CONFIG)
    assert cross.max_encoder_len == 6
    coordinator = KVCacheCoordinator([cross, make_manager(window_spec(4), BlockPool(9))], enable_prefix_caching=True)
    assert not coordinator.enable_prefix_caching
    assert coordinator.start("a", [1, 2, 3], 3, size=RequestSize(3, 5)) == 0
    assert list(cross.blocks_of("a")) == [1, 2]
    for stop in range(4, 30):
        coordinator.cache_blocks("a", list(range(stop)), stop - 1)
        assert coordinator.grow("a", stop)
    assert list(cross.blocks_of("a")) == [1, 2]
    assert coordinator.start("b", [1, 2, 3], 3) == 0
    assert list(cross.blocks_of("b")) == []
    with pytest.raises(ValueError, match="encoder gives 7 tokens; the cache is made for 6"):
        coordinator.start("c", [1, 2, 3], 3, size=RequestSize(3, 7))
    # Nothing is left of a request that was refused.
    assert coordinator.start("c", [1, 2, 3], 3, size=RequestSize(3, 6)) == 0
    assert [need.needed for need in coordinator.blocks_needed(5, RequestSize(3, 6))] == [2, 2]
    assert (coordinator.max_requests(5), coordinator.max_requests(5, RequestSize(3, 6))) == (4, 4)
    for name in "abc":
        coordinator.free(name)
    assert pool.num_free_blocks == 8
    assert cross.num_new_blocks_needed("a", 9) == 0
    assert make_manager(cross_spec(4, 20), BlockPool(3), CONFIG).max_encoder_len == 20
    assert make_manager(cross_spec(4), BlockPool(3)).max_encoder_len is None


def test_a_request_whose_encoder_finds_no_blocks_takes_none_anywhere() -> None:
    cross = make_manager(cross_spec(4), BlockPool(3))
    coordinator = KVCacheCoordinator([make_manager(attention_spec(), BlockPool(9)), cross], enable_prefix_caching=False)
    assert coordinator.start("a", [1, 2], 2, size=RequestSize(2, 5)) == 0
    assert coordinator.start("b", [1, 2], 2, size=RequestSize(2, 5)) is None
    assert coordinator.start("b", [1, 2], 2, size=RequestSize(2, 0)) == 0
    coordinator.free("a")
    coordinator.free("b")
    assert coordinator.start("b", [1, 2], 2, size=RequestSize(2, 8)) == 0


def test_layers_without_a_cache_have_no_columns() -> None:
    pool = BlockPool(2)
    nothing = make_manager(encoder_only_spec(), pool)
    coordinator = KVCacheCoordinator(
        [nothing, make_manager(attention_spec(), BlockPool(9))], enable_prefix_caching=True
    )
    # Tokens that were computed before are lost, so that no prefix may be skipped.
    assert not coordinator.enable_prefix_caching
    assert coordinator.start("a", list(range(20)), 20) == 0
    assert coordinator.grow("a", 25)
    coordinator.cache_blocks("a", list(range(25)), 25)
    assert [len(row) for row in coordinator.blocks_of("a")] == [0, 7]
    assert [need.needed for need in coordinator.blocks_needed(25)] == [0, 7]
    assert coordinator.max_requests(25) == 1
    coordinator.free("a")
    assert pool.num_free_blocks == 1
    assert nothing.num_common_prefix_blocks(["a"]) == 0


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="num_encoder_tokens is -1; it cannot be negative"):
        RequestSize(3, -1)
    with pytest.raises(ValueError, match="num_prompt_tokens is -2"):
        RequestSize(-2)


def test_a_manager_cannot_be_made_around_the_check() -> None:
    pool = BlockPool(9)
    with pytest.raises(NoManagerError, match=r"SinkManager does not serve a FullAttentionSpec \(.*FullAttentionSpec\)"):
        SinkManager(attention_spec(), pool)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType] - no sinks
    with pytest.raises(NoManagerError, match="RSWAManager does not serve a SinkFullAttentionSpec"):
        RSWAManager(sink_spec(4), pool)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType] - no window
    with pytest.raises(NoManagerError, match="FullAttentionManager does not serve a SinkFullAttentionSpec"):
        FullAttentionManager(sink_spec(4), pool)
    with pytest.raises(NoManagerError, match="SlidingWindowManager does not serve a ChunkedLocalAttentionSpec"):
        SlidingWindowManager(chunk_spec(4), pool)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType] - chunks
    with pytest.raises(NoManagerError, match="ChunkedLocalManager does not serve a SlidingWindowSpec"):
        ChunkedLocalManager(window_spec(4), pool)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType] - a window
    with pytest.raises(NoManagerError, match="CrossAttentionManager does not serve a EncoderOnlyAttentionSpec"):
        CrossAttentionManager(encoder_only_spec(), pool)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType] - no cache
    with pytest.raises(NoManagerError, match="EncoderOnlyManager does not serve a CrossAttentionSpec"):
        EncoderOnlyManager(cross_spec(), pool)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType] - a cache
    assert pool.num_free_blocks == pool.num_usable_blocks == 8
