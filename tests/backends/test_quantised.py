"""Back ends over quantised caches: what they build and refuse, the bytes they use, and that they attend as defined."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_type

import pytest
import torch
from attention_batches import make_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from quantised_caches import MODES, make_codec
from torch import Tensor

from genericbuilders.adapter import BindError, BoundGroup
from genericbuilders.backends.chunked_local import chunked_local
from genericbuilders.backends.flash_attn import FLASH_ATTN, FlashAttentionMetadata
from genericbuilders.backends.fp8_kv import FP8_KV
from genericbuilders.backends.int8_kv import INT8_KV
from genericbuilders.backends.quantised import QUANTISED, QuantisedAdapter, quantised_backend
from genericbuilders.backends.quantised_base import QuantisedImpl, quantised_spec
from genericbuilders.backends.turboquant import TURBOQUANT
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.cache import allocate_kv_caches, copy_blocks
from genericbuilders.config import AttentionLayerConfig, EngineConfig, KVCacheLayout
from genericbuilders.kernels.quant import reference
from genericbuilders.kernels.quant.slots import write_slots
from genericbuilders.kernels.tolerance import compare
from genericbuilders.rotary import Rotary, apply_rotary
from genericbuilders.specs import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVQuantMode,
    MambaSpec,
    MLAAttentionSpec,
)

HEADS = AttentionLayerConfig(num_heads=6, num_kv_heads=2, head_size=16, scale=0.25)
CONFIG = EngineConfig(max_model_len=256, layers={"l0": HEADS, "l1": HEADS})
CPU = torch.device("cpu")
by_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


def plain_spec(block_size: int = 4, dtype: torch.dtype = torch.float32) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block_size, num_kv_heads=2, head_size=16, dtype=dtype)


def make_spec(mode: KVQuantMode, block_size: int = 4) -> FullAttentionSpec:
    return quantised_spec(plain_spec(block_size), mode)


def bind(
    spec: FullAttentionSpec, adapter: QuantisedAdapter, heads: AttentionLayerConfig = HEADS
) -> BoundGroup[FlashAttentionMetadata, FullAttentionSpec]:
    config = replace(CONFIG, layers={"l0": heads})
    return adapter.bind(spec, [adapter.layer("l0", heads)], config, CPU)


def inputs(num_tokens: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(num_tokens, 6, 16, generator=generator)
    key, value = torch.randn(2, num_tokens, 2, 16, generator=generator).unbind()
    return query, key, value


def empty_cache(group: BoundGroup[FlashAttentionMetadata, FullAttentionSpec], num_blocks: int) -> Tensor:
    (cache,) = allocate_kv_caches([group], num_blocks, CPU).values()
    return cache


def test_the_types_are_kept() -> None:
    group = bind(make_spec(KVQuantMode.TURBOQUANT_4BIT_NC), TURBOQUANT)
    assert_type(group.builder.build(0, make_batch([1], [0], 4)), FlashAttentionMetadata)
    assert_type(group.spec, FullAttentionSpec)


@by_mode
def test_what_is_built_is_what_flash_attn_builds(mode: KVQuantMode) -> None:
    common = make_batch([1, 5], [3, 0], 4)
    group = bind(make_spec(mode), quantised_backend(mode))
    flash = FLASH_ATTN.bind(plain_spec(), [FLASH_ATTN.layer("l0", HEADS)], CONFIG, CPU)
    metadata, expected = group.builder.build(0, common), flash.builder.build(0, common)
    assert {name: value for name, value in vars(metadata).items() if not isinstance(value, Tensor)} == {
        name: value for name, value in vars(expected).items() if not isinstance(value, Tensor)
    }
    for name, value in vars(metadata).items():
        assert value is getattr(expected, name)
    moved = group.update_block_table(metadata, common.block_table_tensor + 9, common.slot_mapping + 36)
    assert torch.equal(moved.block_table, common.block_table_tensor + 9)
    assert moved.seq_lens is metadata.seq_lens


@by_mode
@pytest.mark.parametrize("padding", [0, 40])
def test_the_bytes_that_a_spec_states_are_those_that_the_cache_uses(mode: KVQuantMode, padding: int) -> None:
    spec = make_spec(mode, block_size=5)
    page = spec.page_size_bytes
    assert page == 5 * 2 * make_codec(mode, 16).slot.slot_bytes
    if padding:
        spec = replace(spec, page_size_padded=page + padding)
    group = bind(spec, quantised_backend(mode))
    cache = empty_cache(group, 7)
    assert cache.element_size() * cache[0].numel() == page
    assert cache.stride(0) == spec.page_size_bytes == page + padding
    # A token in every slot: no byte beyond its block, and not one of a block left unused but to be even.
    block = torch.full_like(cache[1], 0)
    query, key, value = inputs(5, 1)
    metadata = group.builder.build(0, make_batch([5], [0], 5))
    impl = quantised_backend(mode).layer("l0", HEADS).impl
    for draw in range(20):
        query, key, value = inputs(5, draw)
        impl.forward(query, key, value, kv_cache=cache, attn_metadata=metadata)
        block |= cache[1]
    assert not cache[0].any()
    assert not cache[2:].any()
    used = make_codec(mode, 16).slot
    assert bool((block != 0)[..., : used.key_bytes + used.value_bytes].any(1).all())


@by_mode
@settings(max_examples=8, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=5),
    block_size=st.sampled_from([1, 4, 7, 16]),
    causal=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_attends_as_the_reference_in_float64_does(
    mode: KVQuantMode, rows: list[tuple[int, int]], block_size: int, causal: bool, seed: int
) -> None:
    common = replace(make_batch([new for new, _ in rows], [old for _, old in rows], block_size), causal=causal)
    group = bind(make_spec(mode, block_size), quantised_backend(mode))
    cache = empty_cache(group, 2 + int(common.block_table_tensor.max()))
    codec = make_codec(mode, 16)
    _, key, value = inputs(cache.shape[0] * block_size, seed + 1)
    write_slots(key, value, cache, torch.arange(len(key)), codec)
    expected = cache.clone()
    query, key, value = inputs(common.num_actual_tokens, seed)
    write_slots(key, value, expected, common.slot_mapping, codec)

    layer = quantised_backend(mode).layer("l0", HEADS)
    metadata = group.builder.build(0, common)
    got = layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=metadata)
    assert torch.equal(cache, expected)

    def attend(query: Tensor) -> Tensor:
        return reference.paged_attention(
            query,
            expected,
            codec,
            query_start_loc=common.query_start_loc,
            seq_lens=common.seq_lens,
            block_table=common.block_table_tensor,
            scale=HEADS.scale,
            causal=causal,
        )

    comparison = compare(got, attend(query), attend(query.double()))
    assert comparison.passed, comparison


@by_mode
def test_rotation_on_the_way_equals_rotation_before(mode: KVQuantMode) -> None:
    common = make_batch([3, 1], [0, 0], 4)
    group, layer = bind(make_spec(mode), quantised_backend(mode)), quantised_backend(mode).layer("l0", HEADS)
    query, key, value = inputs(4, 1)
    angle = torch.randn(4, 8, generator=torch.Generator().manual_seed(2))
    rotary = Rotary(torch.cat((angle.cos(), angle.cos()), -1), torch.cat((angle.sin(), angle.sin()), -1))
    metadata = group.builder.build(0, common)
    first, second = empty_cache(group, 4), empty_cache(group, 4)
    before = layer.impl.forward(
        apply_rotary(query, rotary), apply_rotary(key, rotary), value, kv_cache=first, attn_metadata=metadata
    )
    fused = layer.impl.forward_rotary(query, key, value, rotary=rotary, kv_cache=second, attn_metadata=metadata)
    assert torch.equal(fused, before)
    assert torch.equal(second, first)


@by_mode
def test_rows_added_by_padding_are_neutral(mode: KVQuantMode) -> None:
    common = make_batch([3, 3, 3, 3], [0, 0, 0, 0], 4)
    group, layer = bind(make_spec(mode), quantised_backend(mode)), quantised_backend(mode).layer("l0", HEADS)
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
    plain_cache, padded_cache = empty_cache(group, 6), empty_cache(group, 6)
    plain = layer.impl.forward(
        query[:12], key[:12], value[:12], kv_cache=plain_cache, attn_metadata=group.builder.build(0, common)
    )
    out = layer.impl.forward(query, key, value, kv_cache=padded_cache, attn_metadata=group.builder.build(0, padded))
    assert torch.equal(out[:12], plain)
    assert not out[12:].any()
    assert torch.equal(padded_cache, plain_cache)


@by_mode
def test_a_prompt_in_pieces_sees_what_it_sees_whole(mode: KVQuantMode) -> None:
    group, layer = bind(make_spec(mode), quantised_backend(mode)), quantised_backend(mode).layer("l0", HEADS)
    query, key, value = inputs(11, 4)
    whole_cache, cache = empty_cache(group, 5), empty_cache(group, 5)
    whole = layer.impl.forward(
        query, key, value, kv_cache=whole_cache, attn_metadata=group.builder.build(0, make_batch([11], [0], 4))
    )
    for first, last in ((0, 3), (3, 4), (4, 11)):
        part = slice(first, last)
        metadata = group.builder.build(0, make_batch([last - first], [first], 4))
        out = layer.impl.forward(query[part], key[part], value[part], kv_cache=cache, attn_metadata=metadata)
        torch.testing.assert_close(out, whole[part], atol=1e-5, rtol=1e-5)
    # Blocks that are copied go on as they were.
    copied = torch.zeros_like(cache)
    copy_blocks(group, {group.layers[0]: copied}, [], [])
    copied[:] = cache
    copy_blocks(group, {group.layers[0]: copied}, [1, 2, 3], [4, 1, 2])
    assert torch.equal(copied[4], cache[1])


def test_a_factor_for_all_keys_keeps_large_ones() -> None:
    group = bind(make_spec(KVQuantMode.FP8_PER_TENSOR), FP8_KV)
    query, key, value = inputs(1, 0)
    value[:] = 4000.0
    out: list[Tensor] = []
    for factor in (1.0, 16.0):
        impl = FP8_KV.layer("l0", HEADS).impl
        assert isinstance(impl, QuantisedImpl)
        impl.value_factor = factor
        metadata = group.builder.build(0, make_batch([1], [0], 4))
        out.append(impl.forward(query, key, value, kv_cache=empty_cache(group, 2), attn_metadata=metadata))
    assert bool((out[0] == 448).all())
    torch.testing.assert_close(out[1], torch.full_like(out[1], 4000.0), atol=0, rtol=2.0**-4)


def test_a_factor_set_after_a_batch_counts_from_then_on() -> None:
    """As where another model's cache is served: nobody is left with the first factor."""
    group = bind(make_spec(KVQuantMode.FP8_PER_TENSOR), FP8_KV)
    query, key, value = inputs(1, 0)
    value[:] = 4000.0
    impl = FP8_KV.layer("l0", HEADS).impl
    assert isinstance(impl, QuantisedImpl)
    metadata = group.builder.build(0, make_batch([1], [0], 4))
    impl.forward(query, key, value, kv_cache=empty_cache(group, 2), attn_metadata=metadata)
    impl.value_factor = 16.0
    out = impl.forward(query, key, value, kv_cache=empty_cache(group, 2), attn_metadata=metadata)
    torch.testing.assert_close(out, torch.full_like(out, 4000.0), atol=0, rtol=2.0**-4)


@by_mode
def test_any_of_them_attends_within_chunks(mode: KVQuantMode) -> None:
    chunked = chunked_local(quantised_backend(mode))
    heads = replace(HEADS, attention_chunk_size=4)
    plain = ChunkedLocalAttentionSpec(
        block_size=4, num_kv_heads=2, head_size=16, dtype=torch.float32, attention_chunk_size=4
    )
    packed = make_spec(mode)
    spec = replace(plain, dtype=packed.dtype, kv_quant_mode=mode, state_content_bytes=packed.state_content_bytes)
    layer = chunked.layer("l0", heads)
    group = chunked.bind(spec, [layer], replace(CONFIG, layers={"l0": heads}), CPU)
    query, key, value = inputs(6, 5)
    (cache,) = allocate_kv_caches([group], 3, CPU).values()
    metadata = group.builder.build(0, make_batch([6], [0], 4))
    got = layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=metadata)
    # The second chunk is a sequence of its own.
    alone = bind(packed, quantised_backend(mode))
    expected = (
        quantised_backend(mode)
        .layer("l0", HEADS)
        .impl.forward(
            query[4:],
            key[4:],
            value[4:],
            kv_cache=empty_cache(alone, 2),
            attn_metadata=alone.builder.build(0, make_batch([2], [0], 4)),
        )
    )
    torch.testing.assert_close(got[4:], expected, atol=1e-6, rtol=1e-6)


@by_mode
def test_support_is_for_single_token_decodes(mode: KVQuantMode) -> None:
    support = bind(make_spec(mode), quantised_backend(mode)).cudagraph_support()
    assert support is AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE


@by_mode
def test_modes_of_other_back_ends_are_refused_by_name_and_number(mode: KVQuantMode) -> None:
    for adapter in set(QUANTISED) - {quantised_backend(mode)}:
        with pytest.raises(
            ValueError, match=rf"layers \['l0'\] .* mode {mode.name} \({mode.value}\); this back end serves"
        ):
            bind(make_spec(mode), adapter)
    with pytest.raises(ValueError, match=r"flash_attn serves"):
        FLASH_ATTN.bind(make_spec(mode), [FLASH_ATTN.layer("l0", HEADS)], CONFIG, CPU)
    with pytest.raises(ValueError, match=r"in mode NONE \(0\)"):
        bind(plain_spec(), quantised_backend(mode))


@by_mode
def test_slots_of_another_size_are_refused_with_both_numbers(mode: KVQuantMode) -> None:
    spec = make_spec(mode)
    assert spec.state_content_bytes is not None
    wrong = replace(spec, state_content_bytes=spec.state_content_bytes + 2)
    with pytest.raises(
        ValueError,
        match=rf"slots of {spec.state_content_bytes + 2} bytes .*{mode.name} .* in {spec.state_content_bytes};",
    ):
        bind(wrong, quantised_backend(mode))


def test_a_spec_of_float8_needs_no_bytes_stated() -> None:
    spec = replace(plain_spec(), dtype=torch.float8_e4m3fn, kv_quant_mode=KVQuantMode.FP8_PER_TENSOR)
    assert bind(spec, FP8_KV).kv_cache_shape(3) == (3, 2, 4, 32)
    with pytest.raises(ValueError, match=r"slots of 128 bytes .*FP8_PER_TENSOR .* in 32;"):
        bind(replace(spec, dtype=torch.float32), FP8_KV)


@by_mode
def test_what_it_would_compute_wrongly_is_refused(mode: KVQuantMode) -> None:
    spec, adapter = make_spec(mode), quantised_backend(mode)
    mla = MLAAttentionSpec(
        block_size=4,
        num_kv_heads=2,
        head_size=16,
        dtype=torch.uint8,
        kv_quant_mode=mode,
        state_content_bytes=spec.state_content_bytes,
    )
    for wrong in (
        replace(spec, sliding_window=8),
        replace(spec, attention_chunk_size=8),
        replace(spec, head_size_v=8),
        mla,
    ):
        with pytest.raises(ValueError, match=r"layers \['l0'\] have .*quantised caches are for full attention"):
            bind(wrong, adapter)
    for heads, told in (
        (replace(HEADS, sliding_window=8), "sliding_window"),
        (replace(HEADS, attention_chunk_size=8), "attention_chunk_size"),
        (replace(HEADS, logits_soft_cap=50.0), "logits_soft_cap"),
        (replace(HEADS, alibi_slopes=(0.5,) * 6), "alibi_slopes"),
        (replace(HEADS, sinks=torch.zeros(6)), "sinks"),
    ):
        with pytest.raises(ValueError, match=rf"layer 'l0' has {told}, which .* does not serve"):
            bind(spec, adapter, heads)
    with pytest.raises(ValueError, match=r"layer 'l0' has the layout kv_first.* use block_first"):
        bind(spec, adapter, replace(HEADS, kv_cache_layout=KVCacheLayout.KV_FIRST))
    with pytest.raises(ValueError, match=r"layer 'l0' has 2 key-value heads of size 16.*made for 8 of size 16"):
        bind(replace(spec, num_kv_heads=8), adapter)


def test_a_cache_of_another_width_is_refused() -> None:
    group = bind(make_spec(KVQuantMode.INT8_PER_TOKEN_HEAD), INT8_KV)
    query, key, value = inputs(1, 0)
    with pytest.raises(
        ValueError, match=r"slots of the cache have 38 bytes; for head size 16 .*INT8_PER_TOKEN_HEAD 40"
    ):
        INT8_KV.layer("l0", HEADS).impl.forward(
            query,
            key,
            value,
            kv_cache=empty_cache(group, 2)[..., :38],
            attn_metadata=group.builder.build(0, make_batch([1], [0], 4)),
        )


def test_only_plain_specs_become_quantised() -> None:
    mode = KVQuantMode.INT8_PER_TOKEN_HEAD
    with pytest.raises(ValueError, match=r"mode INT8_PER_TOKEN_HEAD.*take the spec of a plain cache"):
        quantised_spec(make_spec(mode), mode)
    with pytest.raises(ValueError, match="keys of 16 elements and values of 8; mode INT8_PER_TOKEN_HEAD"):
        quantised_spec(replace(plain_spec(), head_size_v=8), mode)
    with pytest.raises(ValueError, match="padded for plain keys"):
        quantised_spec(replace(plain_spec(), page_size_padded=10_000), mode)
    with pytest.raises(ValueError, match=r"mode NVFP4 \(5\)"):
        quantised_spec(plain_spec(), KVQuantMode.NVFP4)


def test_a_state_spec_is_refused() -> None:
    state = MambaSpec(block_size=4, shapes=((2, 3),), dtypes=(torch.float32,))
    with pytest.raises(BindError, match=r"takes FullAttentionSpec, but layers \['l0'\] have a MambaSpec"):
        INT8_KV.bind(state, [INT8_KV.layer("l0", HEADS)], CONFIG, CPU)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a state spec
