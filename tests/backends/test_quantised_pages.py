"""Pages of quantised caches: the bytes that specs state are those that are allocated, alone and beside other pages."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from attention_batches import make_batch
from quantised_caches import MODES
from torch import Tensor

from genericbuilders.adapter import AttentionLayer
from genericbuilders.backends.flash_attn import FLASH_ATTN, FlashAttentionMetadata
from genericbuilders.backends.quantised import quantised_backend
from genericbuilders.backends.quantised_base import quantised_spec
from genericbuilders.cache import PoolStrategy, allocate_kv_caches, copy_blocks, plan_caches, zero_blocks
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.kernels.quant.formats import slot_format
from genericbuilders.specs import (
    FullAttentionSpec,
    KVCacheGroupSpec,
    KVCacheSpec,
    KVQuantMode,
    MambaSpec,
    SlidingWindowMLASpec,
    UniformTypeKVCacheSpecs,
)

CPU = torch.device("cpu")
by_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


def plain_spec(head_size: int, block_size: int, num_kv_heads: int = 2) -> FullAttentionSpec:
    return FullAttentionSpec(
        block_size=block_size, num_kv_heads=num_kv_heads, head_size=head_size, dtype=torch.bfloat16
    )


def heads_of(spec: FullAttentionSpec) -> AttentionLayerConfig:
    return AttentionLayerConfig(2 * spec.num_kv_heads, spec.num_kv_heads, spec.head_size, spec.head_size**-0.5)


def store(
    layer: AttentionLayer[FlashAttentionMetadata], metadata: FlashAttentionMetadata, cache: Tensor, dtype: torch.dtype
) -> None:
    """Run random tokens through a layer, as many as the metadata says."""
    heads, tokens = layer.impl.layer, metadata.num_actual_tokens
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(tokens, heads.num_heads, heads.head_size, generator=generator).to(dtype)
    key, value = torch.randn(2, tokens, heads.num_kv_heads, heads.head_size, generator=generator).to(dtype).unbind()
    layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=metadata)


@by_mode
@pytest.mark.parametrize("head_size", [16, 17, 33, 63, 80, 127, 192])
@pytest.mark.parametrize("block_size", [1, 5, 16])
def test_allocated_bytes_are_those_of_the_spec(mode: KVQuantMode, head_size: int, block_size: int) -> None:
    spec, adapter = quantised_spec(plain_spec(head_size, block_size), mode), quantised_backend(mode)
    heads = heads_of(spec)
    layers = [adapter.layer(name, heads) for name in ("l0", "l1")]
    group = adapter.bind(spec, layers, EngineConfig(max_model_len=64, layers=dict.fromkeys(("l0", "l1"), heads)), CPU)
    num_blocks = 1 + -(-7 // block_size)
    caches = allocate_kv_caches([group], num_blocks, CPU)
    token_bytes = 2 * slot_format(mode, head_size).slot_bytes
    for layer in layers:
        cache = caches[layer]
        assert (
            cache.untyped_storage().nbytes()
            == num_blocks * spec.page_size_bytes
            == num_blocks * block_size * token_bytes
        )
        store(layer, group.builder.build(0, make_batch([7], [0], block_size)), cache, torch.float32)
        # Seven tokens: so many bytes are used, but for the one that makes a slot's bytes even, and none beyond.
        flat = cache.transpose(1, 2).flatten(0, 1)
        used = flat[block_size : block_size + 7]
        assert not flat[:block_size].any()
        assert not flat[block_size + 7 :].any()
        slot = slot_format(mode, head_size)
        assert not used[..., slot.key_bytes + slot.value_bytes :].any()
        assert used.numel() == 7 * token_bytes
        assert bool((used[..., : slot.key_bytes].any(-1) & used[..., slot.key_bytes :].any(-1)).all())


@by_mode
def test_case_08_target_and_draft_are_zeroed_and_copied_by_their_own_pages(mode: KVQuantMode) -> None:
    plain = plain_spec(64, 4)
    target, draft = quantised_spec(plain, mode), plain
    if mode is KVQuantMode.FP8_PER_TENSOR:
        assert 2 * target.page_size_bytes == draft.page_size_bytes
    assert target.page_size_bytes < draft.page_size_bytes
    heads, adapter = heads_of(plain), quantised_backend(mode)
    config = EngineConfig(max_model_len=64, layers={"target": heads, "draft": heads})
    first, second = adapter.layer("target", heads), FLASH_ATTN.layer("draft", heads)
    common = make_batch([14], [0], 4)
    small = adapter.bind(target, [first], config, CPU)
    large = FLASH_ATTN.bind(draft, [second], config, CPU)
    caches = allocate_kv_caches([small, large], [7, 5], CPU)
    assert caches[first].untyped_storage().nbytes() == 7 * target.page_size_bytes
    assert caches[second].untyped_storage().nbytes() == 5 * draft.page_size_bytes
    store(first, small.builder.build(0, common), caches[first], torch.bfloat16)
    store(second, large.builder.build(0, common), caches[second], torch.bfloat16)
    kept = {layer: cache.clone() for layer, cache in caches.items()}
    assert all(bool(cache[block].any()) for cache in kept.values() for block in (1, 2, 3, 4))
    # Of each group alone, and of the blocks named alone.
    copy_blocks(small, caches, [2, 4], [6, 1])
    zero_blocks(small, caches, [3])
    assert torch.equal(caches[second], kept[second])
    expected = kept[first].clone()
    expected[6], expected[1], expected[3] = kept[first][2], kept[first][4], 0
    assert torch.equal(caches[first], expected)
    copy_blocks(large, caches, [4], [2])
    zero_blocks(large, caches, [1])
    assert torch.equal(caches[first], expected)
    expected = kept[second].clone()
    expected[2], expected[1] = kept[second][4], 0
    assert torch.equal(caches[second], expected)


def test_case_09_states_beside_a_quantised_page_of_12416_bytes() -> None:
    attention = quantised_spec(plain_spec(256, 16), KVQuantMode.TURBOQUANT_K8V4)
    assert attention.page_size_bytes == 12_416
    state = MambaSpec(4096, ((12_648_448,),), (torch.int8,))
    assert state.page_size_bytes == 12_648_448
    assert state.page_size_bytes % attention.page_size_bytes

    def group(spec: KVCacheSpec, name: str, count: int) -> KVCacheGroupSpec:
        return KVCacheGroupSpec(tuple(f"{name}{index}" for index in range(count)), spec)

    groups = [group(state, "s", 3), group(attention, "a", 1)]
    config = EngineConfig(max_model_len=32_768, max_num_seqs=8)
    plan = plan_caches(groups, config)
    assert (plan.strategy, plan.waste_bytes) == (PoolStrategy.OWN_POOLS, 0)
    assert [each.page_bytes for each in plan.groups] == [12_648_448, 12_416]
    assert plan.num_blocks == (9, 8 * 2048 + 1)
    # One pool would have padded each attention page to the state's.
    assert plan.other_waste_bytes is not None
    assert plan.other_waste_bytes > plan.total_bytes / 2
    one = sum(each.resident_blocks * each.block_bytes for each in plan.groups)
    nulls = sum(each.block_bytes for each in plan.groups)
    short = plan_caches(groups, config, nulls + 3 * one + 1_000_000)
    assert (short.requests, short.num_blocks[0]) == (3, 4)
    assert 0 < short.waste_bytes <= 1_000_000


@by_mode
def test_case_27_window_mla_with_a_mode_and_an_alignment_keeps_both(mode: KVQuantMode) -> None:
    spec = SlidingWindowMLASpec(
        block_size=16,
        num_kv_heads=1,
        head_size=64,
        dtype=torch.uint8,
        sliding_window=128,
        kv_quant_mode=mode,
        state_content_bytes=slot_format(mode, 64).slot_bytes,
        alignment=576,
    )
    merged = SlidingWindowMLASpec.merge([spec, replace(spec)])
    assert (merged.kv_quant_mode, merged.alignment) == (mode, 576)
    assert merged == spec
    assert merged.page_size_bytes % 576 == 0
    with pytest.raises(ValueError, match="kv_quant_mode"):
        SlidingWindowMLASpec.merge([spec, replace(spec, kv_quant_mode=KVQuantMode.NVFP4)])
    wrapped = UniformTypeKVCacheSpecs.from_specs({"a": spec, "b": replace(spec, sliding_window=128)})
    assert wrapped is not None
    assert all(each == spec for each in wrapped.kv_cache_specs.values())
