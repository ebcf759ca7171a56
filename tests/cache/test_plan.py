"""The plan of all caches: every group by its own pages, and no more memory than there is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from genericbuilders.cache import CachePlan, CachePlanError, PoolStrategy, agree, plan_caches
from genericbuilders.config import EngineConfig
from genericbuilders.specs import (
    FullAttentionSpec,
    KVCacheGroupSpec,
    KVCacheSpec,
    KVQuantMode,
    MambaCacheMode,
    MambaSpec,
    UniformTypeKVCacheSpecs,
)

CONFIG = EngineConfig(max_model_len=1024, max_num_seqs=8, max_num_batched_tokens=256)


def attention_spec(page_bytes: int = 4096, block_size: int = 16) -> FullAttentionSpec:
    """Plain float32 keys and values of one head."""
    head_size, rest = divmod(page_bytes, 2 * block_size * 4)
    assert not rest
    return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=head_size, dtype=torch.float32)


def state_spec(num_bytes: int = 6000, mode: MambaCacheMode = "none", block_size: int = 16) -> MambaSpec:
    return MambaSpec(block_size=block_size, shapes=((num_bytes,),), dtypes=(torch.int8,), mamba_cache_mode=mode)


def group(spec: KVCacheSpec, num_layers: int = 2, name: str = "l") -> KVCacheGroupSpec:
    return KVCacheGroupSpec(tuple(f"{name}{index}" for index in range(num_layers)), spec)


HYBRID = [group(attention_spec(), 2, "a"), group(state_spec(), 6, "s")]


def test_with_memory_enough_every_request_fits_and_nothing_is_wasted() -> None:
    plan = plan_caches(HYBRID, CONFIG)
    attention, states = plan.groups
    # 64 blocks a request, and one state; a null block each.
    assert plan.num_blocks == (8 * 64 + 1, 8 + 1)
    assert (attention.block_bytes, states.block_bytes) == (2 * 4096, 6 * 6000)
    assert plan.total_bytes == 513 * 2 * 4096 + 9 * 6 * 6000
    assert (plan.strategy, plan.requests, plan.waste_bytes) == (PoolStrategy.OWN_POOLS, 8, 0)
    assert plan.other_waste_bytes is not None
    assert plan.other_waste_bytes > 0


@pytest.mark.parametrize(("mode", "states"), [("none", 9), ("align", 17), ("all", 8 * 64 + 1)])
def test_state_memory_is_bytes_per_state_times_what_requests_hold_and_the_null_state(
    mode: MambaCacheMode, states: int
) -> None:
    plan = plan_caches([group(attention_spec()), group(state_spec(6000, mode), 6)], CONFIG)
    assert plan.num_blocks[1] == states
    assert plan.groups[1].total_bytes == states * 6000 * 6


@pytest.mark.parametrize(("mode", "states"), [("none", 9), ("align", 17), ("all", 21)])
def test_the_number_of_blocks_is_that_of_attention_and_states_follow_the_requests(
    mode: MambaCacheMode, states: int
) -> None:
    groups = [group(attention_spec()), group(attention_spec(8192), name="b"), group(state_spec(6000, mode), name="s")]
    plan = plan_caches(groups, replace(CONFIG, num_blocks=21))
    # In "all", states for as many tokens as attention holds.
    assert plan.num_blocks == (21, 21, states)
    assert plan.requests == 0
    alone = plan_caches(groups[2:], replace(CONFIG, num_blocks=21))
    assert alone.num_blocks == plan_caches(groups[2:], CONFIG).num_blocks


def test_what_one_pool_cannot_use_is_waste() -> None:
    plan = plan_caches(HYBRID, replace(CONFIG, num_blocks=1 + 2 * 64 + 10))
    attention, states = plan.groups
    # Attention holds two requests and a part of the third; five states are idle.
    assert plan.requests == 2
    assert (attention.waste_bytes, states.waste_bytes) == (0, 5 * states.block_bytes)
    plan = plan_caches(HYBRID, replace(CONFIG, num_blocks=1 + 9 * 64))
    assert plan.requests == 8
    assert [each.waste_bytes for each in plan.groups] == [64 * attention.block_bytes, 0]
    assert plan.waste_percent == pytest.approx(100 * 64 * attention.block_bytes / plan.total_bytes)


@settings(max_examples=60, deadline=None)
@given(
    memory=st.integers(40_000, 8_000_000),
    layers=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2)),
    state_bytes=st.integers(1, 50_000),
    mode=st.sampled_from(("none", "align", "all")),
    page=st.sampled_from((128, 4096)),
)
def test_pools_shrink_together_to_what_the_memory_has(
    memory: int, layers: tuple[int, int, int], state_bytes: int, mode: MambaCacheMode, page: int
) -> None:
    groups = [group(attention_spec(page), layers[0], "a"), group(state_spec(state_bytes, mode, 64), layers[1], "s")]
    if layers[2]:
        groups.append(group(attention_spec(2 * page), layers[2], "b"))
    states = 3 if mode == "align" else 2
    smallest = sum((states if each is groups[1] else 2) * each.block_bytes for each in groups)
    if memory < smallest:
        with pytest.raises(CachePlanError, match=rf"{memory} bytes are too few .* at least {smallest} are"):
            plan_caches(groups, CONFIG, memory)
        return
    plan = plan_caches(groups, CONFIG, memory, may_share=False)
    assert plan.total_bytes == sum(each.total_bytes for each in plan.groups) <= memory
    fitting = [(each.num_blocks - 1) // each.resident_blocks for each in plan.groups]
    # Whole states, and in the other pools at most a part of one request more.
    assert plan.requests == min(fitting)
    assert max(fitting) <= max(plan.requests, 1) if mode != "all" else max(fitting) <= plan.requests + 1
    assert 0 <= plan.waste_bytes < plan.total_bytes
    # One more block in every pool that has not all it needs would be too much.
    if plan.requests < CONFIG.max_num_seqs:
        grown = sum((each.num_blocks + each.resident_blocks) * each.block_bytes for each in plan.groups)
        assert grown > memory


def test_a_model_with_one_kind_of_layer_takes_all_the_memory_in_blocks() -> None:
    only = [group(attention_spec(), 3)]
    block = 3 * 4096
    for num_blocks in (2, 3, 100, 512):
        plan = plan_caches(only, CONFIG, num_blocks * block + block - 1)
        assert (plan.num_blocks, plan.waste_bytes, plan.other_waste_bytes) == ((num_blocks,), 0, None)
    assert plan_caches(only, CONFIG, 10**9).num_blocks == (8 * 64 + 1,)
    with pytest.raises(
        CachePlanError, match=rf"{2 * block - 1} bytes .*\(2 blocks of {block} bytes for l0 and 2 more\)"
    ):
        plan_caches(only, CONFIG, 2 * block - 1)
    assert plan_caches([], CONFIG, 0) == CachePlan((), PoolStrategy.OWN_POOLS, 0)


def test_case_08_groups_of_pages_p_and_2p_each_keep_their_own() -> None:
    target = FullAttentionSpec(
        block_size=16,
        num_kv_heads=2,
        head_size=64,
        dtype=torch.float8_e4m3fn,
        kv_quant_mode=KVQuantMode.FP8_PER_TENSOR,
    )
    draft = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.bfloat16)
    plan = plan_caches([group(target, 24, "target"), group(draft, 1, "draft")], CONFIG)
    assert [each.page_bytes for each in plan.groups] == [4096, 8192]
    assert plan.num_blocks == (513, 513)
    assert (plan.strategy, plan.waste_bytes) == (PoolStrategy.OWN_POOLS, 0)


def test_case_09_pages_of_states_and_quantised_attention_need_no_common_divisor() -> None:
    state = state_spec(12_648_448, block_size=4096)
    # Packed keys and values with their scales: 776 bytes a token.
    packed = FullAttentionSpec(
        block_size=16,
        num_kv_heads=1,
        head_size=256,
        dtype=torch.int8,
        kv_quant_mode=KVQuantMode.INT8_PER_TOKEN_HEAD,
        state_content_bytes=776,
    )
    draft = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=128, dtype=torch.bfloat16)
    assert packed.page_size_bytes == 12_416
    groups = [group(state, 3, "s"), group(packed, 1, "a"), group(draft, 1, "draft")]
    config = replace(CONFIG, max_model_len=32_768)
    plan = plan_caches(groups, config)
    assert plan.num_blocks == (9, 8 * 2048 + 1, 8 * 2048 + 1)
    assert [each.page_bytes for each in plan.groups] == [12_648_448, 12_416, 8192]
    assert plan.groups[0].block_size == 4096
    assert plan.waste_bytes == 0
    # A common page would have to be the state's.
    assert plan.other_waste_bytes is not None
    assert plan.other_waste_bytes > plan.total_bytes / 2
    # With memory for three requests and a half, what is left over is reported.
    one = sum(each.resident_blocks * each.block_bytes for each in plan.groups)
    nulls = sum(each.block_bytes for each in plan.groups)
    short = plan_caches(groups, config, nulls + 3 * one + 20_000_000)
    assert (short.strategy, short.requests, short.num_blocks[0]) == (PoolStrategy.OWN_POOLS, 3, 4)
    assert 19_900_000 < short.waste_bytes <= 20_000_000
    assert short.waste_percent == pytest.approx(100 * short.waste_bytes / short.total_bytes)


def test_case_10_stages_plan_by_their_own_layers_and_agree() -> None:
    states, attention = state_spec(60_000), attention_spec()
    first = [group(attention, 4, "a"), group(states, 2, "s")]
    second = [group(states, 6, "t")]
    config = replace(CONFIG, max_num_seqs=32)
    plans = [plan_caches(first, config, 8_000_000, may_share=False), plan_caches(second, config, may_share=False)]
    assert plans[1].num_blocks == (33,)
    assert 0 < plans[0].requests < 32
    agreed = agree(plans)
    assert [plan.requests for plan in agreed] == [plans[0].requests] * 2
    assert agreed[0].num_blocks == plans[0].num_blocks
    assert agreed[1].num_blocks == (1 + plans[0].requests,)
    assert agreed[1].total_bytes == (1 + plans[0].requests) * 6 * 60_000

    # The stage without attention may be the smaller one, too.
    small = plan_caches(second, config, 3 * 6 * 60_000, may_share=False)
    shrunk = agree([plans[0], small])
    assert [plan.requests for plan in shrunk] == [2, 2]
    assert [plan.num_blocks[-1] for plan in shrunk] == [3, 3]
    # A stage without any cache holds whatever the others do.
    assert [plan.requests for plan in agree([small, plan_caches([], config)])] == [2, 2]


def test_stages_with_equal_block_tables_have_equally_many_blocks() -> None:
    wide, narrow = attention_spec(8192), attention_spec(4096)
    plans = [
        plan_caches([group(wide, 2), group(state_spec(), name="s")], CONFIG, 4_000_000, may_share=False),
        plan_caches([group(narrow, 3)], CONFIG, 2_000_000, may_share=False),
    ]
    least = min(plan.num_blocks[0] for plan in plans)
    for order in (plans, plans[::-1]):
        assert [plan.num_blocks[0] for plan in agree(order)] == [least, least]
    # States that another stage keeps otherwise: of each kind as many as the requests need that all stages hold.
    aligned = plan_caches([group(state_spec(mode="align"), name="t")], CONFIG, may_share=False)
    first, second = agree([plans[0], aligned])
    assert (first.requests, second.requests) == (plans[0].requests, plans[0].requests)
    assert second.num_blocks == (1 + 2 * plans[0].requests,)
    shared = plan_caches([group(narrow, 1), group(state_spec(4096), 1, "s")], CONFIG, 391 * 4096)
    assert shared.strategy is PoolStrategy.ONE_POOL
    with pytest.raises(CachePlanError, match="may_share=False"):
        agree([shared, shared])


def test_the_strategy_that_wastes_less_is_taken() -> None:
    """Equal pages: nothing is padded, so one pool leaves no rest where pools of their own do."""
    windows = [
        KVCacheGroupSpec(("a",), replace(attention_spec(), sliding_window=8)),
        KVCacheGroupSpec(("b",), replace(attention_spec(), sliding_window=16)),
    ]
    # Blocks of the two pools for three requests, and some more than fit evenly.
    memory = (2 + 3 * 128 + 5) * 4096
    own = plan_caches(windows, CONFIG, memory, may_share=False)
    assert own.num_blocks == (1 + 3 * 64 + 2, 1 + 3 * 64 + 2)
    assert own.waste_bytes == 0
    odd = [group(state_spec(4096), 1, "s"), group(attention_spec(), 1, "a")]
    apart = plan_caches(odd, CONFIG, memory, may_share=False)
    together = plan_caches(odd, CONFIG, memory)
    assert (apart.requests, apart.num_blocks[0]) == (5, 6)
    assert apart.waste_bytes == (apart.num_blocks[1] - 1 - 5 * 64) * 4096 > 0
    assert (together.strategy, together.waste_bytes) == (PoolStrategy.ONE_POOL, 0)
    assert together.other_waste_bytes == apart.waste_bytes
    assert together.num_blocks == (memory // 4096,) * 2
    assert together.total_bytes == memory
    # One byte more in a state, and every block of attention would have to grow with it.
    uneven = plan_caches([group(state_spec(4097), 1, "s"), group(attention_spec(), 1, "a")], CONFIG, memory)
    assert uneven.other_waste_bytes is not None
    assert uneven.waste_bytes <= uneven.other_waste_bytes


def test_padding_that_the_specs_ask_for_is_waste() -> None:
    padded = replace(state_spec(6000), page_size_padded=8192)
    plan = plan_caches([group(padded, 3)], CONFIG)
    (states,) = plan.groups
    assert (states.page_bytes, states.content_bytes) == (8192, 3 * 6000)
    assert plan.waste_bytes == 8 * 3 * (8192 - 6000)


def test_case_29_wrapped_layers_are_planned_by_their_own_specs() -> None:
    wide, narrow = state_spec(6000), state_spec(2000)
    wrapped = UniformTypeKVCacheSpecs(16, {"x": wide, "y": narrow})
    mixed = UniformTypeKVCacheSpecs(16, {"p": attention_spec(), "q": replace(attention_spec(), sliding_window=8)})
    groups = [KVCacheGroupSpec(("y", "x"), wrapped), KVCacheGroupSpec(("p", "q"), mixed)]
    plan = plan_caches(groups, replace(CONFIG, num_blocks=50))
    states, attention = plan.groups
    # States are known as such within the wrapper: they follow the requests, not the number of blocks.
    assert plan.num_blocks == (9, 50)
    assert (states.spec_type, states.page_bytes, states.block_bytes) == ("MambaSpec", 6000, 8000)
    assert (attention.spec_type, attention.block_bytes) == ("FullAttentionSpec", 8192)
