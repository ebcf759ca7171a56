"""Managers: what they do with blocks, and what the checkers infer from a spec."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_type

import pytest
import torch
from toy_backends import FULL_SPEC, STATE_SPEC
from typing_extensions import TypeVar

from genericbuilders.cache import (
    BlockHash,
    BlockPool,
    FullAttentionManager,
    GroupManager,
    KVCacheManager,
    MambaManager,
    NoManagerError,
    OutOfBlocksError,
    extend_block_hashes,
    make_manager,
)
from genericbuilders.specs import (
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

S = TypeVar("S", bound=FullAttentionSpec)
F32 = torch.float32
MLA = MLAAttentionSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=F32)
RSWA = RSWASpec(block_size=4, num_kv_heads=2, head_size=8, dtype=F32, rswa_window=8)
SINK = SinkFullAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=F32, sink_len=4)
WINDOW = SlidingWindowSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=F32, sliding_window=8)
WRAPPED = UniformTypeKVCacheSpecs(4, {"a": FULL_SPEC, "b": MLA})
WIDE_STATE = MambaSpec(block_size=4, shapes=((9,),), dtypes=(F32,))
WRAPPED_STATES = UniformTypeKVCacheSpecs(4, {"a": STATE_SPEC, "b": WIDE_STATE})


@dataclass(frozen=True, kw_only=True)
class TheirStateSpec(MambaSpec):
    """Somebody else's state: kept as any other, so it inherits the key that says so."""

    note: str = ""


@dataclass(frozen=True, kw_only=True)
class TheirFullSpec(FullAttentionSpec):
    """Somebody else's spec: all blocks are kept, so it inherits the key that says so."""

    note: str = ""


def hashes_of(tokens: list[int], block_size: int = 4) -> list[BlockHash]:
    hashes: list[BlockHash] = []
    extend_block_hashes(hashes, tokens, block_size)
    return hashes


def manager(num_blocks: int = 10) -> FullAttentionManager:
    return make_manager(FULL_SPEC, BlockPool(num_blocks))


def test_a_manager_keeps_its_specs_type() -> None:
    made = make_manager(FULL_SPEC, BlockPool(4))
    assert_type(made, FullAttentionManager)
    assert_type(made, FullAttentionManager[FullAttentionSpec])
    assert_type(made.spec, FullAttentionSpec)
    narrow: KVCacheManager[FullAttentionSpec] = made
    assert narrow.spec is FULL_SPEC

    assert_type(make_manager(MLA, BlockPool(4)).spec, MLAAttentionSpec)
    assert_type(make_manager(WRAPPED, BlockPool(4)).spec, UniformTypeKVCacheSpecs)
    state = make_manager(STATE_SPEC, BlockPool(4))
    assert_type(state, MambaManager)
    assert_type(state, MambaManager[MambaSpec])
    assert_type(state.spec, MambaSpec)
    of_states: KVCacheManager[MambaSpec] = state
    assert of_states.spec is STATE_SPEC
    theirs = make_manager(TheirStateSpec(block_size=4, shapes=((2,),), dtypes=(F32,), note="n"), BlockPool(4))
    assert_type(theirs, MambaManager[TheirStateSpec])
    assert theirs.spec.note == "n"
    assert (
        make_manager(TheirFullSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=F32), BlockPool(4)).block_size == 4
    )


@pytest.mark.parametrize(
    ("erased", "kind"),
    [
        (FULL_SPEC, FullAttentionManager),
        (MLA, FullAttentionManager),
        (WRAPPED, FullAttentionManager),
        (STATE_SPEC, MambaManager),
        (WRAPPED_STATES, MambaManager),
    ],
)
def test_an_erased_spec_gets_an_erased_manager(erased: KVCacheSpec, kind: type[GroupManager]) -> None:
    made = assert_type(make_manager(erased, BlockPool(4)), GroupManager)
    assert isinstance(made, kind)


def test_case_29_a_wrapper_is_taken_off_before_its_type_is_asked_for() -> None:
    # Which manager a wrapper gets depends on its layers, so its type promises neither.
    made = make_manager(WRAPPED_STATES, BlockPool(4))
    assert_type(made, KVCacheManager[UniformTypeKVCacheSpecs])
    assert isinstance(made, MambaManager)
    assert made.mode == "none"
    made.allocate("a", 100)
    assert made.blocks_of("a") == [1]
    all_blocks = replace(STATE_SPEC, mamba_cache_mode="all")
    aligned = replace(STATE_SPEC, mamba_cache_mode="align")
    assert make_manager(UniformTypeKVCacheSpecs(4, {"a": all_blocks}), BlockPool(4)).blocks_for_longest(9) == 3
    assert make_manager(UniformTypeKVCacheSpecs(4, {"a": aligned}), BlockPool(4)).blocks_for_longest(9) == 2
    cross = CrossAttentionSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=F32)
    with pytest.raises(NoManagerError, match=r"no cache manager serves a UniformTypeKVCacheSpecs \(.*CrossAttention"):
        make_manager(UniformTypeKVCacheSpecs(4, {"a": cross}), BlockPool(4))


def test_a_spec_stays_generic_through_a_caller() -> None:
    def make(spec: S) -> FullAttentionManager[S]:
        return make_manager(spec, BlockPool(4))

    assert assert_type(make(MLA).spec, MLAAttentionSpec) is MLA


def test_a_wrong_spec_type_is_refused_by_the_checkers() -> None:
    wrong: KVCacheManager[MLAAttentionSpec] = make_manager(FULL_SPEC, BlockPool(4))  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType] - a full spec is no MLA spec
    assert wrong.spec is FULL_SPEC
    states: KVCacheManager[FullAttentionSpec] = make_manager(STATE_SPEC, BlockPool(4))  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType] - a state is no token cache
    assert states.block_size == 4
    with pytest.raises(TypeError, match="MambaManager does not serve a FullAttentionSpec"):
        MambaManager(FULL_SPEC, BlockPool(4))  # type: ignore[type-var]  # pyright: ignore[reportArgumentType] - a token cache is no state
    with pytest.raises(TypeError, match="does not serve a MambaSpec"):
        FullAttentionManager(STATE_SPEC, BlockPool(4))  # type: ignore[type-var]  # pyright: ignore[reportArgumentType] - a state is no token cache


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            replace(STATE_SPEC, mamba_cache_mode="align", num_speculative_blocks=2),
            r"MambaSpec, align, 2\): states of 2 draft tokens are kept in the mode 'none' only, not in 'align'",
        ),
        (WINDOW, r"a SlidingWindowSpec \(allocation key: SlidingWindowSpec, 8, 0\)"),
        (RSWA, r"a RSWASpec \(allocation key: RSWASpec, 8\)"),
        (SINK, r"a SinkFullAttentionSpec \(allocation key: SinkFullAttentionSpec, 4\)"),
        (
            UniformTypeKVCacheSpecs(4, {"a": RSWA}),
            r"a UniformTypeKVCacheSpecs \(allocation key: RSWASpec, 8\)",
        ),
    ],
)
def test_a_spec_whose_blocks_are_not_simply_kept_is_refused_by_name(spec: KVCacheSpec, told: str) -> None:
    with pytest.raises(NoManagerError, match=told):
        make_manager(spec, BlockPool(4))


def test_a_full_manager_cannot_be_made_around_the_check() -> None:
    with pytest.raises(TypeError, match="FullAttentionManager does not serve a RSWASpec"):
        FullAttentionManager(RSWA, BlockPool(4))


def test_blocks_grow_with_tokens() -> None:
    full = manager()
    assert full.num_new_blocks_needed("a", 9) == 3
    full.allocate("a", 9)
    assert full.blocks_of("a") == [1, 2, 3]
    assert full.num_new_blocks_needed("a", 12) == 0
    full.allocate("a", 13)
    assert full.blocks_of("a") == [1, 2, 3, 4]
    full.allocate("a", 2)
    assert len(full.blocks_of("a")) == 4
    assert full.blocks_for_longest(13) == 4
    with pytest.raises(OutOfBlocksError, match="6 blocks were asked for, but 5 of 9 are free"):
        full.allocate("b", 24)
    assert list(full.blocks_of("b")) == []
    full.free("a")
    full.free("unknown")
    assert full.pool.num_free_blocks == 9


def test_a_hit_is_the_longest_prefix_and_leaves_room_for_a_token() -> None:
    full = manager()
    tokens = list(range(12))
    full.allocate("a", 12)
    full.cache_full_blocks("a", hashes_of(tokens), 11)
    assert full.find_longest_cache_hit(hashes_of(tokens), 12) == [1, 2]
    full.cache_full_blocks("a", hashes_of(tokens), 12)
    assert full.find_longest_cache_hit(hashes_of(tokens), 12) == [1, 2, 3]
    assert full.find_longest_cache_hit(hashes_of(tokens), 11) == [1, 2]
    assert full.find_longest_cache_hit(hashes_of([*tokens[:4], 99, *tokens[5:]]), 12) == [1]
    assert full.find_longest_cache_hit(hashes_of([99, *tokens[1:]]), 12) == []


def test_the_end_of_a_freed_prefix_is_reused_before_its_start() -> None:
    full = manager(5)
    tokens = list(range(16))
    full.allocate("a", 16)
    full.cache_full_blocks("a", hashes_of(tokens), 16)
    full.free("a")
    for left in (3, 2, 1):
        full.allocate("b", (4 - left) * 4)
        assert len(full.find_longest_cache_hit(hashes_of(tokens), 16)) == left


def test_adopted_blocks_are_shared_until_the_last_one_frees_them() -> None:
    full = manager()
    tokens = list(range(8))
    full.allocate("a", 8)
    full.cache_full_blocks("a", hashes_of(tokens), 8)
    full.adopt("b", full.find_longest_cache_hit(hashes_of(tokens), 8))
    full.allocate("b", 9)
    assert full.blocks_of("b") == [1, 2, 3]
    with pytest.raises(ValueError, match="request 'b' holds blocks"):
        full.adopt("b", [1])
    full.free("a")
    assert [full.pool.ref_count(block) for block in (1, 2, 3)] == [1, 1, 1]
    full.free("b")
    assert full.pool.num_free_blocks == 9


def test_computed_tokens_need_blocks() -> None:
    full = manager()
    full.allocate("a", 4)
    with pytest.raises(ValueError, match="request 'a' holds 1 blocks of 4 tokens, too few for 8 computed tokens"):
        full.cache_full_blocks("a", hashes_of(list(range(8))), 8)
    assert full.pool.num_cached_blocks == 0


@pytest.mark.parametrize(
    ("tables", "common"),
    [
        ([], 0),
        ([[1, 2]], 2),
        ([[1, 2, 3], [1, 2, 4]], 2),
        ([[1, 2, 3], [1, 5, 3], [1, 2, 3, 6]], 1),
        ([[1, 2, 3], [1], [1, 2, 3]], 1),
        ([[1, 2], [3, 2]], 0),
        ([[1, 2], []], 0),
    ],
)
def test_the_common_prefix_is_what_all_share(tables: list[list[int]], common: int) -> None:
    pool = BlockPool(10)
    full = make_manager(FULL_SPEC, pool)
    for number, block in enumerate(pool.get_new_blocks(6)):
        pool.cache_block(block, hashes_of([number] * 4)[0])
    for index, table in enumerate(tables):
        full.adopt(str(index), table)
    assert full.num_common_prefix_blocks([str(index) for index in range(len(tables))]) == common
