"""Managers: what they do with blocks, and what the checkers infer from a spec."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import assert_type

import pytest
import torch
from toy_backends import FULL_SPEC, STATE_SPEC
from typing_extensions import TypeVar, override

from genericbuilders.cache import (
    BlockHash,
    BlockPool,
    ChunkedLocalManager,
    CrossAttentionManager,
    EncoderOnlyManager,
    FullAttentionManager,
    GroupManager,
    KVCacheManager,
    MambaManager,
    NoManagerError,
    OutOfBlocksError,
    RSWAManager,
    SinkManager,
    SlidingWindowManager,
    extend_block_hashes,
    make_manager,
)
from genericbuilders.config import EngineConfig
from genericbuilders.specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
    promote_to_full,
)

S = TypeVar("S", bound=FullAttentionSpec)
F32 = torch.float32
MLA = MLAAttentionSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=F32)
RSWA = RSWASpec(block_size=4, num_kv_heads=2, head_size=8, dtype=F32, rswa_window=8)
SINK = SinkFullAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=F32, sink_len=4)
WINDOW = SlidingWindowSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=F32, sliding_window=8)
CHUNK = ChunkedLocalAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=F32, attention_chunk_size=8)
LATENT_WINDOW = SlidingWindowMLASpec(block_size=4, num_kv_heads=1, head_size=8, dtype=F32, sliding_window=8)
CROSS = CrossAttentionSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=F32, max_encoder_len=12)
ENCODER = EncoderOnlyAttentionSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=F32)
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


@dataclass(frozen=True, kw_only=True)
class TheirWindowSpec(SlidingWindowSpec):
    """Somebody else's window: blocks are given back as any other's, so it inherits the key that says so."""

    note: str = ""


@dataclass(frozen=True, kw_only=True)
class OddWindowSpec(SlidingWindowSpec):
    """Somebody else's window, whose blocks are given back by rules of their own."""

    @property
    @override
    def allocation_key(self) -> tuple[Hashable, ...]:
        return ("odd", self.sliding_window)


@dataclass(frozen=True)
class TheirsSpec(KVCacheSpec):
    """A spec of a kind that nobody here knows."""

    @property
    @override
    def page_size_bytes(self) -> int:
        return 8

    @property
    @override
    def allocation_key(self) -> tuple[Hashable, ...]:
        return ("theirs",)

    @override
    def max_resident_blocks(self, config: EngineConfig) -> int:
        return 1


ODD = OddWindowSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=F32, sliding_window=8)


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


def test_managers_that_give_blocks_back_keep_their_spec_s_type_too() -> None:
    windowed = make_manager(WINDOW, BlockPool(4))
    assert_type(windowed, SlidingWindowManager)
    assert_type(windowed.spec, SlidingWindowSpec)
    latent = make_manager(LATENT_WINDOW, BlockPool(4))
    assert_type(latent, SlidingWindowManager[SlidingWindowMLASpec])
    assert latent.spec.bounded_replay is False
    theirs = TheirWindowSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=F32, sliding_window=2, note="n")
    assert make_manager(theirs, BlockPool(4)).spec.note == "n"
    assert_type(make_manager(CHUNK, BlockPool(4)), ChunkedLocalManager)
    assert_type(make_manager(CROSS, BlockPool(4)), CrossAttentionManager)
    assert_type(make_manager(ENCODER, BlockPool(4)), EncoderOnlyManager)
    # Both are full specs; their managers are the narrower ones.
    assert_type(make_manager(RSWA, BlockPool(4)), RSWAManager)
    assert_type(make_manager(SINK, BlockPool(4)), SinkManager)
    assert assert_type(make_manager(SINK, BlockPool(4)).spec, SinkFullAttentionSpec).sink_len == 4
    of_windows: KVCacheManager[SlidingWindowSpec] = windowed
    assert of_windows.spec is WINDOW
    promoted = make_manager(promote_to_full(WINDOW), BlockPool(4))
    assert_type(promoted, FullAttentionManager)
    assert promoted.spec.sliding_window == 8


@pytest.mark.parametrize(
    ("erased", "kind"),
    [
        (WINDOW, SlidingWindowManager),
        (LATENT_WINDOW, SlidingWindowManager),
        (CHUNK, ChunkedLocalManager),
        (CROSS, CrossAttentionManager),
        (ENCODER, EncoderOnlyManager),
        (RSWA, RSWAManager),
        (SINK, SinkManager),
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
    # Others, too: the layers decide, and what they say is read where they say it.
    cross = make_manager(UniformTypeKVCacheSpecs(4, {"a": CROSS}), BlockPool(4))
    assert isinstance(cross, CrossAttentionManager)
    assert cross.max_encoder_len == 12
    windowed = make_manager(UniformTypeKVCacheSpecs(4, {"a": WINDOW, "b": LATENT_WINDOW}), BlockPool(4))
    assert isinstance(windowed, SlidingWindowManager)
    assert windowed.sliding_window == 8
    chunked = make_manager(UniformTypeKVCacheSpecs(4, {"a": CHUNK}), BlockPool(4))
    assert isinstance(chunked, ChunkedLocalManager)
    assert chunked.attention_chunk_size == 8
    referring = make_manager(UniformTypeKVCacheSpecs(4, {"a": RSWA}), BlockPool(4))
    assert isinstance(referring, RSWAManager)
    assert referring.rswa_window == 8
    sunk = make_manager(UniformTypeKVCacheSpecs(4, {"a": SINK, "b": SINK}), BlockPool(4))
    assert isinstance(sunk, SinkManager)
    assert sunk.sink_blocks == (1,)
    assert isinstance(make_manager(UniformTypeKVCacheSpecs(4, {"a": ENCODER}), BlockPool(4)), EncoderOnlyManager)


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
        (ODD, r"SlidingWindowManager does not serve a OddWindowSpec \(allocation key: odd, 8\)"),
        (
            UniformTypeKVCacheSpecs(4, {"a": ODD}),
            r"does not serve a UniformTypeKVCacheSpecs \(allocation key: odd, 8\)",
        ),
        (TheirsSpec(4), r"no cache manager serves a TheirsSpec \(allocation key: theirs\)"),
    ],
)
def test_a_spec_whose_blocks_are_kept_otherwise_is_refused_by_name(spec: KVCacheSpec, told: str) -> None:
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
