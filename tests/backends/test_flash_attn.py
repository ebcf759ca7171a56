"""The full-attention back end: what it builds, what it refuses, and that it attends as the reference does."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_type

import pytest
import torch
from attention_batches import attend_by_mask, make_batch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from genericbuilders.adapter import BindError, BoundGroup
from genericbuilders.backends.flash_attn import CPU_PREFIX_RULE, FLASH_ATTN, FlashAttentionMetadata, FlashAttentionSpec
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.cache import allocate_kv_caches
from genericbuilders.config import AttentionLayerConfig, CommonPrefixRule, EngineConfig, KVCacheLayout
from genericbuilders.kernels import reference
from genericbuilders.kernels.layout import split_kv
from genericbuilders.kernels.tolerance import compare
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.rotary import Rotary, apply_rotary
from genericbuilders.specs import (
    FullAttentionSpec,
    KVQuantMode,
    MambaSpec,
    MLAAttentionSpec,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
    promote_to_full,
)

HEADS = AttentionLayerConfig(num_heads=6, num_kv_heads=2, head_size=16, scale=0.25)
CONFIG = EngineConfig(max_model_len=256, layers={"l0": HEADS, "l1": HEADS})
CPU = torch.device("cpu")


def make_spec(block_size: int = 4, dtype: torch.dtype = torch.float32) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block_size, num_kv_heads=2, head_size=16, dtype=dtype)


def bind(spec: FullAttentionSpec) -> BoundGroup[FlashAttentionMetadata, FlashAttentionSpec]:
    return FLASH_ATTN.bind(spec, [FLASH_ATTN.layer("l0", HEADS)], CONFIG, CPU)


def inputs(num_tokens: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(num_tokens, 6, 16, generator=generator)
    key, value = torch.randn(2, num_tokens, 2, 16, generator=generator).unbind()
    return query, key, value


def test_the_types_are_kept() -> None:
    group = bind(make_spec())
    assert_type(group.builder.build(0, make_batch([1], [0], 4)), FlashAttentionMetadata)
    assert_type(group.spec, FlashAttentionSpec)


def test_the_batch_is_passed_on() -> None:
    common = make_batch([1, 5], [3, 0], 4)
    metadata = bind(make_spec()).builder.build(0, common)
    assert metadata.query_start_loc is common.query_start_loc
    assert metadata.block_table is common.block_table_tensor
    assert (metadata.num_actual_tokens, metadata.max_query_len, metadata.max_seq_len) == (6, 5, 5)
    moved = bind(make_spec()).update_block_table(metadata, common.block_table_tensor + 9, common.slot_mapping + 36)
    assert torch.equal(moved.block_table, common.block_table_tensor + 9)
    assert moved.seq_lens is metadata.seq_lens


@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=5),
    block_size=st.sampled_from([1, 4, 7, 16]),
    causal=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_attends_as_the_reference_in_float64_does(
    rows: list[tuple[int, int]], block_size: int, causal: bool, seed: int
) -> None:
    common = make_batch([new for new, _ in rows], [old for _, old in rows], block_size)
    group = bind(make_spec(block_size))
    num_blocks = 1 + int(common.block_table_tensor.max())
    generator = torch.Generator().manual_seed(seed)
    cache = torch.randn(group.kv_cache_shape(num_blocks), generator=generator)
    keys, values = (part.double() for part in split_kv(cache, KVCacheLayout.BLOCK_FIRST))
    query, key, value = inputs(common.num_actual_tokens, seed)

    metadata = group.builder.build(0, replace(common, causal=causal))
    got = FLASH_ATTN.layer("l0", HEADS).impl.forward(query, key, value, kv_cache=cache, attn_metadata=metadata)

    exact = attend_by_reference(common, query.double(), key.double(), value.double(), keys, values, causal)
    working = attend_by_reference(common, query, key, value, keys.float(), values.float(), causal)
    comparison = compare(got, working, exact)
    assert comparison.passed, comparison


def attend_by_reference(
    common: CommonAttentionMetadata,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keys: Tensor,
    values: Tensor,
    causal: bool,
) -> Tensor:
    reference.write_kv_cache(key, value, keys, values, common.slot_mapping)
    return reference.paged_attention(
        query,
        keys,
        values,
        query_start_loc=common.query_start_loc,
        seq_lens=common.seq_lens,
        block_table=common.block_table_tensor,
        scale=HEADS.scale,
        causal=causal,
    )


def test_rotation_on_the_way_equals_rotation_before() -> None:
    common = make_batch([3, 1], [2, 8], 4)
    group, layer = bind(make_spec()), FLASH_ATTN.layer("l0", HEADS)
    query, key, value = inputs(4, 1)
    angle = torch.randn(4, 8, generator=torch.Generator().manual_seed(2))
    rotary = Rotary(torch.cat((angle.cos(), angle.cos()), -1), torch.cat((angle.sin(), angle.sin()), -1))
    metadata = group.builder.build(0, common)
    first, second = torch.zeros(group.kv_cache_shape(8)), torch.zeros(group.kv_cache_shape(8))
    before = layer.impl.forward(
        apply_rotary(query, rotary), apply_rotary(key, rotary), value, kv_cache=first, attn_metadata=metadata
    )
    fused = layer.impl.forward_rotary(query, key, value, rotary=rotary, kv_cache=second, attn_metadata=metadata)
    torch.testing.assert_close(fused, before, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(second, first, atol=1e-6, rtol=1e-5)


def test_rows_added_by_padding_are_neutral() -> None:
    common = make_batch([3, 3, 3, 3], [5, 0, 2, 9], 4)
    group, layer = bind(make_spec()), FLASH_ATTN.layer("l0", HEADS)
    query, key, value = inputs(18, 3)
    stale = torch.full((6, common.block_table_tensor.shape[1]), 77, dtype=torch.int32)
    stale[:4] = common.block_table_tensor
    padded = replace(
        common,
        num_reqs=6,
        query_start_loc=torch.tensor([0, 3, 6, 9, 12, 12, 12], dtype=torch.int32),
        seq_lens=torch.cat((common.seq_lens, torch.zeros(2, dtype=torch.int32))),
        block_table_tensor=stale,
        slot_mapping=torch.cat((common.slot_mapping, torch.full((6,), -1))),
    )
    plain_cache, padded_cache = torch.zeros(group.kv_cache_shape(16)), torch.zeros(group.kv_cache_shape(16))
    plain = layer.impl.forward(
        query[:12], key[:12], value[:12], kv_cache=plain_cache, attn_metadata=group.builder.build(0, common)
    )
    out = layer.impl.forward(query, key, value, kv_cache=padded_cache, attn_metadata=group.builder.build(0, padded))
    assert torch.equal(out[:12], plain)
    assert not out[12:].any()
    assert torch.equal(padded_cache, plain_cache)


def test_case_24_each_layer_of_a_group_reads_its_own_layout() -> None:
    other = replace(HEADS, kv_cache_layout=KVCacheLayout.KV_FIRST)
    layers = [FLASH_ATTN.layer("l0", HEADS), FLASH_ATTN.layer("l1", other)]
    group = FLASH_ATTN.bind(make_spec(), layers, CONFIG, CPU)
    # With two blocks, both shapes are the same: nothing but the layer's own word tells them apart.
    caches = allocate_kv_caches([group], 2, CPU)
    assert caches[layers[0]].shape == caches[layers[1]].shape == (2, 2, 2, 4, 16)
    query, key, value = inputs(4, 5)
    metadata = group.builder.build(0, make_batch([4], [0], 4))
    outs = [layer.impl.forward(query, key, value, kv_cache=caches[layer], attn_metadata=metadata) for layer in layers]
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(caches[layers[0]][1, 0], key.transpose(0, 1))
    assert torch.equal(caches[layers[1]][0, 1], key.transpose(0, 1))


def test_support_is_for_uniform_batches() -> None:
    assert bind(make_spec()).cudagraph_support() is AttentionCGSupport.UNIFORM_BATCH


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (replace(make_spec(), attention_chunk_size=8), "chunks"),
        (replace(make_spec(), kv_quant_mode=KVQuantMode.FP8_PER_TENSOR), "a quantised cache"),
        (replace(make_spec(), head_size_v=8), "values of 8 elements"),
        (MLAAttentionSpec(block_size=4, num_kv_heads=2, head_size=16, dtype=torch.float32), "a MLAAttentionSpec"),
        (
            SinkFullAttentionSpec(block_size=4, num_kv_heads=2, head_size=16, dtype=torch.float32, sink_len=4),
            "a SinkFullAttentionSpec",
        ),
    ],
)
def test_what_it_would_compute_wrongly_is_refused(spec: FullAttentionSpec, says: str) -> None:
    with pytest.raises(ValueError, match=rf"layers \['l0'\] have .*{says}.*flash_attn serves plain keys and values"):
        bind(spec)


def test_a_cache_of_another_window_is_refused() -> None:
    with pytest.raises(ValueError, match="layer 'l0' sees all tokens, but its cache is kept for a window of 8 tokens"):
        bind(replace(make_spec(), sliding_window=8))


def window_spec(window: int, block_size: int) -> SlidingWindowSpec:
    return SlidingWindowSpec(
        block_size=block_size, num_kv_heads=2, head_size=16, dtype=torch.float32, sliding_window=window
    )


@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=4),
    block_size=st.sampled_from([1, 4, 7]),
    window=st.sampled_from([1, 3, 8, 50]),
    promoted=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_window_sees_its_last_tokens_alone(
    rows: list[tuple[int, int]], block_size: int, window: int, promoted: bool, seed: int
) -> None:
    common = make_batch([new for new, _ in rows], [old for _, old in rows], block_size)
    heads = replace(HEADS, sliding_window=window)
    spec: FlashAttentionSpec = window_spec(window, block_size)
    layer = FLASH_ATTN.layer("l0", heads)
    config = replace(CONFIG, layers={"l0": heads})
    group = FLASH_ATTN.bind(promote_to_full(spec) if promoted else spec, [layer], config, CPU)
    query, key, value = inputs(common.num_actual_tokens, seed)
    cache = torch.randn(group.kv_cache_shape(1 + int(common.block_table_tensor.max())))

    def attend(dtype: torch.dtype) -> Tensor:
        keys, values = (part.to(dtype, copy=True) for part in split_kv(cache, KVCacheLayout.BLOCK_FIRST))
        reference.write_kv_cache(key.to(dtype), value.to(dtype), keys, values, common.slot_mapping)
        return attend_by_mask(common, query.to(dtype), keys, values, 0.25, lambda at, to: to <= at and to > at - window)

    working, exact = attend(torch.float32), attend(torch.float64)
    got = layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=group.builder.build(0, common))
    comparison = compare(got, working, exact)
    assert comparison.passed, comparison


@pytest.mark.parametrize("block_size", [1, 2, 4, 16])
def test_the_exact_window(block_size: int) -> None:
    """A prompt of 6, then 5 tokens: at every step exactly the last 8 positions are seen, and none before."""
    heads = AttentionLayerConfig(1, 1, 16, 1.0, sliding_window=8)
    layer = FLASH_ATTN.layer("l0", heads)
    spec = replace(window_spec(8, block_size), num_kv_heads=1)
    group = FLASH_ATTN.bind(spec, [layer], replace(CONFIG, layers={"l0": heads}), CPU)
    cache = torch.zeros(group.kv_cache_shape(1 + 16))
    for new, old in [(6, 0), *((1, length) for length in range(6, 11))]:
        common = make_batch([new], [old], block_size)
        # Equal scores, and values that are one-hot by position: a result is the mean over what is seen.
        value = torch.zeros(new, 1, 16)
        for index in range(new):
            value[index, 0, old + index] = 1.0
        query, key = torch.zeros(new, 1, 16), torch.zeros(new, 1, 16)
        out = layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=group.builder.build(0, common))
        for index in range(new):
            at = old + index
            seen = [place for place in range(16) if float(out[index, 0, place]) > 0]
            assert seen == list(range(max(0, at - 7), at + 1))


@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=2, max_size=4),
    shared_blocks=st.integers(1, 3),
    soft_cap=st.sampled_from([None, 3.0]),
    seed=st.integers(0, 99),
)
def test_a_shared_prefix_is_attended_over_once(
    rows: list[tuple[int, int]], shared_blocks: int, soft_cap: float | None, seed: int
) -> None:
    """Cascade: the front of every row stands in the same blocks."""
    size, shared = 4, 4 * shared_blocks
    common = make_batch([new for new, _ in rows], [shared + old for _, old in rows], size)
    table = common.block_table_tensor.clone()
    table[:, :shared_blocks] = table[:1, :shared_blocks]
    common = replace(common, block_table_tensor=table)
    heads = replace(HEADS, logits_soft_cap=soft_cap)
    layer = FLASH_ATTN.layer("l0", heads)
    group = FLASH_ATTN.bind(make_spec(size), [layer], replace(CONFIG, layers={"l0": heads}), CPU)
    query, key, value = inputs(common.num_actual_tokens, seed)
    cache = torch.randn(group.kv_cache_shape(1 + int(table.max())), generator=torch.Generator().manual_seed(seed))
    split, whole = group.builder.build(shared + 3, common), group.builder.build(0, common)
    assert (split.common_prefix_len, whole.common_prefix_len) == (shared if common.num_actual_tokens else 0, 0)

    def run(metadata: FlashAttentionMetadata) -> Tensor:
        return layer.impl.forward(query, key, value, kv_cache=cache.clone(), attn_metadata=metadata)

    torch.testing.assert_close(run(split), run(whole), rtol=1e-5, atol=1e-5)


@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    padding=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_a_shared_prefix_beside_empty_and_padding_rows(
    rows: list[tuple[int, int]], dtype: torch.dtype, padding: int, seed: int
) -> None:
    """An empty row in front has no blocks, and rows behind are stale: neither is taken for the prefix."""
    size, shared = 4, 8
    common = make_batch([0, *(new for new, _ in rows)], [0, *(shared + old for _, old in rows)], size)
    table = torch.full((len(rows) + 1 + padding, common.block_table_tensor.shape[1]), 99, dtype=torch.int32)
    table[: len(rows) + 1] = common.block_table_tensor
    table[1 : len(rows) + 1, :2] = table[1, :2].clone()
    tokens = common.num_actual_tokens
    starts = torch.cat((common.query_start_loc, torch.full((padding,), tokens, dtype=torch.int32)))
    lens = torch.cat((common.seq_lens, torch.zeros(padding, dtype=torch.int32)))
    padded = replace(
        common,
        num_reqs=len(lens),
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lens,
        seq_lens_cpu=lens,
        num_computed_tokens_cpu=torch.nn.functional.pad(common.num_computed_tokens_cpu, (0, padding)),
        block_table_tensor=table,
        slot_mapping=torch.cat((common.slot_mapping, torch.full((padding,), -1))),
    )
    group, layer = bind(make_spec(size, dtype)), FLASH_ATTN.layer("l0", HEADS)
    query, key, value = (part.to(dtype) for part in inputs(tokens + padding, seed))
    generator = torch.Generator().manual_seed(seed)
    cache = torch.randn(group.kv_cache_shape(1 + int(common.block_table_tensor.max())), generator=generator).to(dtype)
    split = group.builder.build(shared, padded)
    assert split.common_prefix_len == (shared if tokens else 0)

    def attend(wide: torch.dtype) -> Tensor:
        keys, values = (part.to(wide, copy=True) for part in split_kv(cache, KVCacheLayout.BLOCK_FIRST))
        new = query[:tokens].to(wide), key[:tokens].to(wide), value[:tokens].to(wide)
        return attend_by_reference(replace(common, block_table_tensor=table), *new, keys, values, True)

    exact, working = attend(torch.float64), attend(dtype)
    out = layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=split)
    # Two parts and their merge round three times more than one pass.
    comparison = compare(out[:tokens], working, exact, roundings=16.0)
    assert comparison.passed, comparison
    assert not out[tokens:].any()


def sharing(new: list[int], old: list[int], rows: int) -> CommonAttentionMetadata:
    """A batch whose first ``rows`` rows have their first two blocks in common."""
    common = make_batch(new, old, 4)
    table = common.block_table_tensor.clone()
    table[:rows, :2] = table[0, :2].clone()
    return replace(common, block_table_tensor=table)


def test_a_split_batch_moves_to_another_group_s_blocks_whole() -> None:
    """Where the other group's rows share no blocks; nobody has said whether they do."""
    common, other = sharing([1, 2], [9, 12], 2), make_batch([1, 2], [9, 12], 4)
    group, layer = bind(make_spec()), FLASH_ATTN.layer("l0", HEADS)
    metadata = group.builder.build(8, common)
    assert metadata.common_prefix_len == 8
    moved = group.update_block_table(metadata, other.block_table_tensor, other.slot_mapping)
    assert moved.common_prefix_len == 0
    cache, (query, key, value) = torch.randn(group.kv_cache_shape(30)), inputs(3, 7)
    expected = layer.impl.forward(
        query, key, value, kv_cache=cache.clone(), attn_metadata=group.builder.build(0, other)
    )
    assert torch.equal(layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=moved), expected)


def test_a_prefix_is_read_through_a_row_that_has_tokens() -> None:
    """The longest row has none, and other blocks."""
    common = sharing([1, 1, 0], [9, 9, 50], 2)
    group, layer = bind(make_spec()), FLASH_ATTN.layer("l0", HEADS)
    cache, (query, key, value) = torch.randn(group.kv_cache_shape(30)), inputs(2, 7)
    split, whole = (
        layer.impl.forward(query, key, value, kv_cache=cache.clone(), attn_metadata=group.builder.build(shared, common))
        for shared in (8, 0)
    )
    torch.testing.assert_close(split, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("lengths", "told"), [((-3, 10), "row 0 has computed -4"), ((10, 1), "row 1 has computed -1")])
def test_a_prefix_hides_no_wrong_length(lengths: tuple[int, int], told: str) -> None:
    lens = torch.tensor(lengths, dtype=torch.int32)
    common = replace(
        sharing([1, 2], [9, 8], 2),
        seq_lens=lens,
        seq_lens_cpu=lens,
        num_computed_tokens_cpu=lens - torch.tensor([1, 2], dtype=torch.int32),
    )
    with pytest.raises(ValueError, match=f"share a prefix of 8 tokens that was computed before, but {told}"):
        bind(make_spec()).builder.build(8, common)


def test_no_new_token_may_lie_in_the_prefix() -> None:
    with pytest.raises(ValueError, match="a prefix of 12 tokens that was computed before, but row 1 has computed 8"):
        bind(make_spec()).builder.build(12, sharing([1, 2], [12, 8], 2))


def test_a_layer_looks_in_the_direction_of_its_spec() -> None:
    spec = replace(make_spec(), non_causal=True)
    with pytest.raises(ValueError, match=r"layers \['l0'\] are causal, but their spec is non_causal"):
        bind(spec)


def test_caches_in_which_nothing_is_computed_are_refused() -> None:
    group, layer = bind(make_spec(4, torch.float8_e4m3fn)), FLASH_ATTN.layer("l0", HEADS)
    query, key, value = inputs(1, 0)
    cache = torch.zeros(group.kv_cache_shape(3)).to(torch.float8_e4m3fn)
    with pytest.raises(TypeError, match=r"caches are torch\.float8_e4m3fn"):
        layer.impl.forward(
            query, key, value, kv_cache=cache, attn_metadata=group.builder.build(0, make_batch([1], [0], 4))
        )


def test_whoever_builds_is_told_when_a_prefix_pays() -> None:
    rule = CommonPrefixRule(2, 4)
    assert_type(bind(make_spec()).common_prefix_rule(), CommonPrefixRule | None)
    for device, chosen, expected in [
        ("cpu", None, CPU_PREFIX_RULE),
        ("cpu", rule, rule),
        # Nobody has measured it there.
        ("cuda", None, None),
        ("cuda", rule, rule),
    ]:
        config = replace(CONFIG, common_prefix_rule=chosen)
        group = FLASH_ATTN.bind(make_spec(), [FLASH_ATTN.layer("l0", HEADS)], config, torch.device(device))
        assert group.common_prefix_rule() == expected


def test_a_prefix_of_less_than_a_block_or_of_one_row_is_not_split_off() -> None:
    group = bind(make_spec())
    assert group.builder.build(3, make_batch([1, 1], [9, 9], 4)).common_prefix_len == 0
    assert group.builder.build(8, make_batch([1], [9], 4)).common_prefix_len == 0
    assert group.builder.build(8, make_batch([], [], 4)).common_prefix_len == 0


def test_layers_whose_scores_depend_on_positions_do_not_share() -> None:
    common = make_batch([1, 1], [40, 40], 4)
    for heads in (
        replace(HEADS, alibi_slopes=(0.5,) * 6),
        replace(HEADS, sinks=torch.zeros(6)),
        replace(HEADS, sliding_window=8),
    ):
        spec = replace(make_spec(), sliding_window=heads.sliding_window)
        group = FLASH_ATTN.bind(spec, [FLASH_ATTN.layer("l0", heads)], replace(CONFIG, layers={"l0": heads}), CPU)
        assert group.builder.build(32, common).common_prefix_len == 0
        assert group.common_prefix_rule() is None


def test_case_21_layers_with_other_heads_than_the_cache_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"layer 'l0' has 2 key-value heads of size 16.*made for 8 of size 16"):
        bind(replace(make_spec(), num_kv_heads=8))


def test_case_21_draft_and_target_each_use_their_own_heads() -> None:
    target = AttentionLayerConfig(num_heads=64, num_kv_heads=8, head_size=16, scale=0.25)
    draft = AttentionLayerConfig(num_heads=8, num_kv_heads=2, head_size=16, scale=0.25)
    layers = {"target": target, "draft": draft}
    config = EngineConfig(max_model_len=64, layers=layers)
    for name, heads in layers.items():
        layer = FLASH_ATTN.layer(name, heads)
        spec = replace(make_spec(), num_kv_heads=heads.num_kv_heads)
        group = FLASH_ATTN.bind(spec, [layer], config, CPU)
        ratio = heads.num_heads // heads.num_kv_heads
        assert ratio == {"target": 8, "draft": 4}[name]
        value = torch.randn(1, heads.num_kv_heads, 16)
        out = layer.impl.forward(
            torch.randn(1, heads.num_heads, 16),
            torch.randn(1, heads.num_kv_heads, 16),
            value,
            kv_cache=torch.zeros(group.kv_cache_shape(2)),
            attn_metadata=group.builder.build(0, make_batch([1], [0], 4)),
        )
        # One token attends to itself only, so each query head returns its own key-value head's value.
        torch.testing.assert_close(out, value.repeat_interleave(ratio, dim=1))


def test_a_state_spec_is_refused() -> None:
    state = MambaSpec(block_size=4, shapes=((2, 3),), dtypes=(torch.float32,))
    with pytest.raises(
        BindError, match=r"takes FullAttentionSpec or SlidingWindowSpec, but layers \['l0'\] have a MambaSpec"
    ):
        FLASH_ATTN.bind(state, [FLASH_ATTN.layer("l0", HEADS)], CONFIG, CPU)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a state spec


def test_a_table_of_one_column_may_have_any_strides() -> None:
    """Which ``contiguous()`` does not change."""
    common = make_batch([1, 2], [1, 0], 4)
    table = common.block_table_tensor.repeat(1, 3).T.contiguous().T[:, :1].contiguous()
    assert table.stride(1) != 1
    group, layer = bind(make_spec()), FLASH_ATTN.layer("l0", HEADS)
    cache, (query, key, value) = torch.randn(group.kv_cache_shape(9)), inputs(3, 7)
    got, expected = (
        layer.impl.forward(query, key, value, kv_cache=cache.clone(), attn_metadata=group.builder.build(0, each))
        for each in (replace(common, block_table_tensor=table), common)
    )
    assert torch.equal(got, expected)
