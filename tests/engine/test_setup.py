"""From layers to an engine: groups, pools, memory, and tokens that prove that pages are each request's own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from hash_model import PAGES, HashModel, attention_spec, expected_tokens, state_spec
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import IdTokenizer

from genericbuilders.adapter import BackendAdapter, BindError
from genericbuilders.cache import CachePlanError, MambaManager, PoolStrategy
from genericbuilders.engine.engine import Engine
from genericbuilders.engine.request import RequestError, SamplingParams
from genericbuilders.engine.setup import EngineOptions, build_engine, plan_model, prepare
from genericbuilders.model import LoadedModel, PlacedLayer
from genericbuilders.specs import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    KVQuantMode,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

MAX_TOKENS = 6


def engine_of(specs: Sequence[KVCacheSpec], options: EngineOptions) -> Engine:
    return build_engine(LoadedModel(HashModel(specs), IdTokenizer()), options)


def limit_memory(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    """Let so many bytes be all that is free."""

    def free(device: torch.device) -> int:
        return num_bytes

    monkeypatch.setattr("genericbuilders.engine.setup._free_bytes", free)


def window_spec(window: int) -> SlidingWindowSpec:
    return SlidingWindowSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=torch.float32, sliding_window=window)


def prompts_of(seed: int, count: int) -> list[list[int]]:
    choose = random.Random(seed)
    common = [choose.randrange(97) for _ in range(25)]
    return [
        common[: choose.randint(0, 25)] + [choose.randrange(97) for _ in range(choose.randint(1, 12))]
        for _ in range(count)
    ]


def serve(engine: Engine, specs: Sequence[KVCacheSpec], prompts: Sequence[list[int]]) -> None:
    completions = engine.generate(prompts, SamplingParams(max_tokens=MAX_TOKENS))
    for prompt, completion in zip(prompts, completions, strict=True):
        assert completion.error is None
        assert list(completion.token_ids) == expected_tokens(specs, prompt, MAX_TOKENS)
    for pool in engine.runner.coordinator.pools:
        assert pool.num_free_blocks == pool.num_usable_blocks


MIXES: dict[str, list[KVCacheSpec]] = {
    "attention": [attention_spec(), attention_spec()],
    "none": [attention_spec(), state_spec("none"), state_spec("none")],
    "only states": [state_spec("none"), state_spec("none", num_bytes=16)],
    "align": [state_spec("align", 8), attention_spec(4), state_spec("align", 8)],
    "align, other blocks": [attention_spec(4), state_spec("align", 6)],
    "only align": [state_spec("align", 4)],
    "all": [attention_spec(2), state_spec("all", 4)],
    "modes beside each other": [state_spec("align", 4), state_spec("all", 8), attention_spec(4)],
}


@pytest.mark.parametrize("mix", list(MIXES))
@settings(max_examples=6, deadline=None)
@given(
    budget=st.integers(1, 40),
    max_num_seqs=st.integers(1, 8),
    tight=st.booleans(),
    caching=st.booleans(),
    seed=st.integers(0, 50),
)
def test_tokens_are_right_however_the_batch_is_run(
    mix: str, budget: int, max_num_seqs: int, tight: bool, caching: bool, seed: int
) -> None:
    specs = MIXES[mix]
    options = EngineOptions(
        block_size=4,
        # For the longest request, and nothing beside it.
        num_blocks=1 + 43 // min(spec.block_size for spec in specs) + 1 if tight else None,
        max_num_batched_tokens=budget,
        max_num_seqs=max_num_seqs,
        enable_prefix_caching=caching,
    )
    engine = engine_of(specs, options)
    # Twice, so that the second time prefixes are found where the mode keeps them.
    serve(engine, specs, prompts_of(seed, 5))
    serve(engine, specs, prompts_of(seed, 5))
    if not caching or mix in ("none", "only states"):
        assert engine.stats.num_cached_tokens == 0


@pytest.mark.parametrize("mix", ["align", "only align", "all", "align, other blocks"])
def test_prefixes_are_found_at_block_ends_of_all_groups(mix: str) -> None:
    engine = engine_of(MIXES[mix], EngineOptions(max_num_batched_tokens=10, max_num_seqs=6))
    prompt = list(range(30))
    serve(engine, MIXES[mix], [prompt])
    serve(engine, MIXES[mix], [prompt])
    # Pieces of 10 end at 8, 16, 24; where blocks of 6 and of 4 must agree, at 24 too.
    assert engine.stats.num_cached_tokens == {"align": 24, "only align": 28, "all": 28, "align, other blocks": 24}[mix]


def test_each_group_has_a_pool_of_its_own_size() -> None:
    specs = [attention_spec(), state_spec("none", num_bytes=24), attention_spec(), state_spec("none", num_bytes=24)]
    model = HashModel(specs)
    options = EngineOptions(block_size=4, num_blocks=30, max_num_seqs=5)
    engine = build_engine(LoadedModel(model, IdTokenizer()), options)
    attention, states = engine.runner.coordinator.managers
    assert [group.layer_names for group in engine.runner.groups] == [
        ("layers.0", "layers.2"),
        ("layers.1", "layers.3"),
    ]
    assert isinstance(states, MambaManager)
    assert (attention.pool.num_blocks, states.pool.num_blocks) == (30, 6)
    sizes = {layer.name: cache.untyped_storage().nbytes() for layer, cache in engine.runner.kv_caches.items()}
    # Bytes of a state times requests, and the null state.
    assert sizes == {"layers.0": 30 * 256, "layers.1": 6 * 24, "layers.2": 30 * 256, "layers.3": 6 * 24}
    plan = plan_model(model, options)
    assert plan.total_bytes == sum(sizes.values())
    before = {layer.name: cache.data_ptr() for layer, cache in engine.runner.kv_caches.items()}
    for seed in range(20):
        serve(engine, specs, prompts_of(seed, 8))
    assert {layer.name: cache.data_ptr() for layer, cache in engine.runner.kv_caches.items()} == before


def test_the_default_pools_hold_all_requests_at_full_length() -> None:
    engine = engine_of([attention_spec(), state_spec("align", 8)], EngineOptions(max_num_seqs=3))
    assert [manager.pool.num_blocks for manager in engine.runner.coordinator.managers] == [3 * 24 + 1, 2 * 3 + 1]
    assert engine.runner.coordinator.max_requests(96) == 3
    assert engine.runner.config.layers.keys() == {"layers.0", "layers.1"}


def test_little_memory_shrinks_all_pools_together(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [attention_spec(), state_spec("none", num_bytes=2000)]
    model = LoadedModel(HashModel(specs), IdTokenizer())
    one = 24 * 256 + 2000
    limit_memory(monkeypatch, 4 * (256 + 2000 + 2 * one + 900))
    engine = build_engine(model, EngineOptions(max_num_seqs=8))
    attention, states = engine.runner.coordinator.managers
    assert (attention.pool.num_blocks, states.pool.num_blocks) == (1 + 2 * 24 + 3, 3)
    prompts = prompts_of(1, 6)
    serve(engine, specs, prompts)
    limit_memory(monkeypatch, 4 * 4000)
    with pytest.raises(CachePlanError, match="4000 bytes are too few for caches: at least 4512"):
        build_engine(model, EngineOptions())


def test_groups_of_equal_pages_share_a_pool_where_that_wastes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    specs: list[KVCacheSpec] = [attention_spec(), state_spec("align", 4, num_bytes=256)]
    # Two requests hold 2 x 26 blocks; ten more are of no use to pools of their own.
    limit_memory(monkeypatch, 4 * 256 * (1 + 2 * 26 + 10))
    loaded = LoadedModel(HashModel(specs), IdTokenizer())
    options = EngineOptions(max_num_seqs=8, max_num_batched_tokens=64)
    plan = prepare(loaded, options).plan
    assert (plan.strategy, plan.num_blocks, plan.waste_bytes) == (PoolStrategy.ONE_POOL, (63, 63), 0)
    engine = build_engine(loaded, options)
    (pool,) = engine.runner.coordinator.pools
    assert pool.num_blocks == 63
    assert len({cache.untyped_storage().data_ptr() for cache in engine.runner.kv_caches.values()}) == 1
    for seed in range(8):
        serve(engine, specs, prompts_of(seed, 8))
    assert engine.stats.num_cached_tokens > 0
    assert engine.stats.num_preemptions > 0


def test_case_08_target_and_draft_of_other_pages_serve_together() -> None:
    draft = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=torch.bfloat16)
    target = replace(draft, dtype=torch.float8_e4m3fn, kv_quant_mode=KVQuantMode.FP8_PER_TENSOR)
    assert 2 * target.page_size_bytes == draft.page_size_bytes
    specs = [target, target, draft]
    for num_blocks in (24, 60):
        serve(engine_of(specs, EngineOptions(block_size=4, num_blocks=num_blocks)), specs, prompts_of(8, 6))


def test_case_09_states_beside_quantised_attention_serve_and_waste_is_told() -> None:
    draft = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=128, dtype=torch.bfloat16)
    packed = replace(
        draft,
        head_size=256,
        dtype=torch.int8,
        kv_quant_mode=KVQuantMode.INT8_PER_TOKEN_HEAD,
        state_content_bytes=776,
    )
    specs = [state_spec("none", num_bytes=12_648_448), packed, draft]
    options = EngineOptions(num_blocks=3 * 6 + 1, max_num_seqs=3)  # six blocks for a request of full length
    setup = prepare(LoadedModel(HashModel(specs), IdTokenizer()), options)
    assert [group.page_bytes for group in setup.plan.groups] == [12_648_448, 12_416, 8192]
    assert (setup.plan.requests, setup.plan.waste_bytes) == (3, 0)
    serve(setup.start(), specs, prompts_of(9, 8))
    # With blocks for two such requests, the third state holds nothing.
    few = prepare(setup.loaded, replace(options, num_blocks=2 * 6 + 1))
    assert (few.plan.requests, few.plan.waste_bytes) == (2, 12_648_448)
    serve(few.start(), specs, prompts_of(9, 8))


@pytest.mark.parametrize("states", ["none", "align", "all"])
def test_case_28_without_the_hybrid_manager_each_layer_keeps_its_own_window(states: str) -> None:
    specs = [window_spec(8), window_spec(16), state_spec(states), window_spec(8), attention_spec()]
    engine = engine_of(specs, EngineOptions(max_num_batched_tokens=20, hybrid_kv_cache=False))
    bound = {group.layer_names: group.kv_cache_spec for group in engine.runner.groups}
    assert set(bound) == {("layers.0", "layers.3"), ("layers.1",), ("layers.2",), ("layers.4",)}
    promoted = [spec for spec in bound.values() if isinstance(spec, FullAttentionSpec)]
    assert [spec.sliding_window for spec in promoted] == [8, 16, None]
    assert bound[("layers.2",)] is specs[2]
    serve(engine, specs, prompts_of(3, 6))


def test_case_28_nothing_but_windows_and_chunks_is_promoted() -> None:
    chunk = ChunkedLocalAttentionSpec(
        block_size=4, num_kv_heads=1, head_size=8, dtype=torch.float32, attention_chunk_size=8
    )
    layers = [chunk, window_spec(8), attention_spec()]
    loaded = LoadedModel(HashModel(layers), IdTokenizer())
    groups = prepare(loaded, EngineOptions(hybrid_kv_cache=False)).groups
    specs = [group.kv_cache_spec for group in groups]
    assert [spec.attention_chunk_size for spec in specs if isinstance(spec, FullAttentionSpec)] == [8, None, None]
    serve(build_engine(loaded, EngineOptions(hybrid_kv_cache=False)), layers, prompts_of(4, 5))
    # With it, chunks and windows keep their types, and give blocks back.
    engine = build_engine(loaded, EngineOptions())
    assert [group.kv_cache_spec for group in engine.runner.groups] == layers
    serve(engine, layers, prompts_of(4, 5))


@dataclass(frozen=True, kw_only=True)
class TheirWindowSpec(SlidingWindowSpec):
    note: str = ""


def test_a_window_from_elsewhere_that_cannot_be_promoted_is_refused_by_layer() -> None:
    theirs = TheirWindowSpec(
        block_size=4, num_kv_heads=1, head_size=8, dtype=torch.float32, sliding_window=8, note="kept"
    )
    loaded = LoadedModel(HashModel([attention_spec(), theirs]), IdTokenizer())
    with pytest.raises(BindError, match=r"layer 'layers.1': TheirWindowSpec has no form that keeps all blocks"):
        build_engine(loaded, EngineOptions(hybrid_kv_cache=False))


def test_case_29_a_wrapped_spec_is_unwrapped_for_each_layer() -> None:
    wide, narrow = state_spec("none", num_bytes=24), state_spec("none", num_bytes=8)
    wrapped = UniformTypeKVCacheSpecs(4, {"layers.0": wide, "layers.1": narrow})
    model = HashModel([wide, narrow, attention_spec()])
    third = model.layers[2]
    model.layers = [*(PlacedLayer(placed.layer, wrapped) for placed in model.layers[:2]), third]
    engine = build_engine(LoadedModel(model, IdTokenizer()), EngineOptions(max_num_seqs=3))
    assert [group.kv_cache_spec for group in engine.runner.groups] == [wide, narrow, attention_spec()]
    assert [manager.pool.num_blocks for manager in engine.runner.coordinator.managers][:2] == [4, 4]
    serve(engine, [wide, narrow, attention_spec()], prompts_of(5, 5))
    model.layers = [PlacedLayer(third.layer, wrapped)]
    with pytest.raises(BindError, match=r"'layers.2' is not among those that its spec wraps: \['layers.0', 'layers.1'"):
        plan_model(model, EngineOptions())


def test_case_31_adapters_of_one_name_are_two_groups() -> None:
    twins = (PAGES, BackendAdapter("pages", PAGES.builder, PAGES.impl))
    model = HashModel([state_spec(), state_spec(), state_spec()], twins)
    groups = prepare(LoadedModel(model, IdTokenizer()), EngineOptions()).groups
    assert [group.layer_names for group in groups] == [("layers.0", "layers.2"), ("layers.1",)]


def test_more_requests_than_states_wait_and_one_that_never_fits_is_refused() -> None:
    specs = [attention_spec(), state_spec("align", 4)]
    setup = prepare(LoadedModel(HashModel(specs), IdTokenizer()), EngineOptions(max_num_seqs=2))
    engine = setup.start()
    serve(engine, specs, prompts_of(2, 12))
    attention, states = setup.plan.groups
    small = replace(setup.plan, groups=(attention, replace(states, num_blocks=2)))
    engine = replace(setup, plan=small).start()
    with pytest.raises(RequestError, match="in group 1 needs 2 states; the pool has 1 beside the null block"):
        engine.add_request("a", [1] * 10, SamplingParams(max_tokens=4))
    assert not engine.has_unfinished()
