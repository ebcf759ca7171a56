from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

import pytest
import torch
from toy_backends import CONFIG, CPU, FULL_SPEC, STATE_SPEC, DenseBuilder, DenseImpl, DenseMetadata, state_adapter
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.cache import allocate_kv_caches, num_blocks_for
from genericbuilders.config import AttentionLayerConfig, KVCacheLayout
from genericbuilders.kernels.layout import split_kv
from genericbuilders.specs import AttentionSpec, FullAttentionSpec

NUM_BLOCKS = 5


class PagedBuilder(DenseBuilder):
    @classmethod
    @override
    def get_kv_cache_shape(cls, num_blocks: int, kv_cache_spec: AttentionSpec) -> tuple[int, ...]:
        return (num_blocks, 2, kv_cache_spec.num_kv_heads, kv_cache_spec.block_size, kv_cache_spec.head_size)

    @classmethod
    @override
    def get_kv_cache_dtype(cls, kv_cache_spec: AttentionSpec) -> torch.dtype:
        return kv_cache_spec.dtype


PAGED: BackendAdapter[DenseMetadata, AttentionSpec] = BackendAdapter("paged", PagedBuilder, DenseImpl)


@dataclass(frozen=True)
class Case:
    dtype: torch.dtype
    padding: int
    layout: KVCacheLayout


def heads(layout: KVCacheLayout = KVCacheLayout.BLOCK_FIRST) -> AttentionLayerConfig:
    return AttentionLayerConfig(num_heads=4, num_kv_heads=2, head_size=8, scale=1.0, kv_cache_layout=layout)


def spec_of(dtype: torch.dtype = torch.float32, padding: int = 0) -> FullAttentionSpec:
    content = 2 * 4 * 2 * 8 * dtype.itemsize
    return FullAttentionSpec(
        block_size=4, num_kv_heads=2, head_size=8, dtype=dtype, page_size_padded=content + padding if padding else None
    )


@pytest.mark.parametrize(
    "case",
    [
        Case(torch.float32, 0, KVCacheLayout.BLOCK_FIRST),
        Case(torch.bfloat16, 0, KVCacheLayout.BLOCK_FIRST),
        Case(torch.float16, 6, KVCacheLayout.BLOCK_FIRST),
        Case(torch.float32, 64, KVCacheLayout.BLOCK_FIRST),
        Case(torch.float32, 0, KVCacheLayout.KV_FIRST),
        Case(torch.bfloat16, 0, KVCacheLayout.KV_FIRST),
    ],
)
def test_every_place_of_every_layer_is_its_own(case: Case) -> None:
    spec, config = spec_of(case.dtype, case.padding), heads(case.layout)
    layers = [PAGED.layer(name, config) for name in ("l0", "l1")]
    caches = allocate_kv_caches([PAGED.bind(spec, layers, CONFIG, CPU)], NUM_BLOCKS, CPU)
    assert set(caches) == set(layers)
    marks: list[tuple[torch.Tensor, int]] = []
    for number, layer in enumerate(layers):
        cache = caches[layer]
        assert cache.dtype == case.dtype
        assert cache.untyped_storage().nbytes() == NUM_BLOCKS * spec.page_size_bytes
        for side, half in enumerate(split_kv(cache, case.layout)):
            assert half.shape == (NUM_BLOCKS, 4, 2, 8)
            assert not half.any()
            half.fill_(1 + 2 * number + side)
            marks.append((half, 1 + 2 * number + side))
    for half, mark in marks:
        assert (half == mark).all()
    if case.layout is KVCacheLayout.BLOCK_FIRST:
        first = caches[layers[0]]
        assert first[2].is_contiguous()
        assert first.stride(0) * case.dtype.itemsize == spec.page_size_bytes


def test_layers_of_both_layouts_share_a_group() -> None:
    layers = [PAGED.layer(layout.value, heads(layout)) for layout in KVCacheLayout]
    # Two blocks: both shapes are [2, 2, ...] (case 24).
    caches = allocate_kv_caches([PAGED.bind(spec_of(), layers, CONFIG, CPU)], 2, CPU)
    keys = torch.arange(2 * 4 * 2 * 8, dtype=torch.float32).view(2, 4, 2, 8)
    for layer, cache in caches.items():
        key, value = split_kv(cache, layer.config.kv_cache_layout)
        key.copy_(keys)
        value.copy_(-keys)
    by_name = {layer.name: cache for layer, cache in caches.items()}
    assert by_name["kv_first"][0, 1].equal(by_name["block_first"][1, 0])
    assert by_name["kv_first"][1, 0].equal(by_name["block_first"][0, 1])


def test_a_back_end_without_a_shape_gets_raw_pages() -> None:
    adapter = state_adapter()
    layer = adapter.layer("s", heads())
    caches = allocate_kv_caches([adapter.bind(STATE_SPEC, [layer], CONFIG, CPU)], 3, CPU)
    assert_type(caches[layer], torch.Tensor)
    assert caches[layer].shape == (3, STATE_SPEC.page_size_bytes)
    assert caches[layer].dtype == torch.int8


class TooLargeBuilder(PagedBuilder):
    @classmethod
    @override
    def get_kv_cache_shape(cls, num_blocks: int, kv_cache_spec: AttentionSpec) -> tuple[int, ...]:
        return (num_blocks, 3, kv_cache_spec.num_kv_heads, kv_cache_spec.block_size, kv_cache_spec.head_size)


def test_what_does_not_fit_a_page_is_refused() -> None:
    too_large: BackendAdapter[DenseMetadata, AttentionSpec] = BackendAdapter("large", TooLargeBuilder, DenseImpl)
    group = too_large.bind(spec_of(), [too_large.layer("l0", heads())], CONFIG, CPU)
    with pytest.raises(ValueError, match=r"layer 'l0': a block .* has 768 bytes, more than the 512"):
        allocate_kv_caches([group], NUM_BLOCKS, CPU)
    odd = PAGED.bind(spec_of(padding=2), [PAGED.layer("l0", heads())], CONFIG, CPU)
    with pytest.raises(ValueError, match=r"layer 'l0': a page of 514 bytes holds no whole number of torch.float32"):
        allocate_kv_caches([odd], NUM_BLOCKS, CPU)
    kv_first = PAGED.layer("l0", heads(KVCacheLayout.KV_FIRST))
    with pytest.raises(ValueError, match=r"padded from 512 to 576 bytes, which the layout kv_first cannot hold"):
        allocate_kv_caches([PAGED.bind(spec_of(padding=64), [kv_first], CONFIG, CPU)], NUM_BLOCKS, CPU)


def test_blocks_follow_from_memory() -> None:
    page, state = FULL_SPEC.page_size_bytes, STATE_SPEC.page_size_bytes
    assert num_blocks_for(10 * page, [FULL_SPEC]) == 10
    assert num_blocks_for(10 * (2 * page + state) - 1, [FULL_SPEC, FULL_SPEC, STATE_SPEC]) == 9
    with pytest.raises(ValueError, match=f"{2 * page - 1} bytes are too few for caches: one block takes {page} bytes"):
        num_blocks_for(2 * page - 1, [FULL_SPEC])
    with pytest.raises(ValueError, match="no layer takes memory"):
        num_blocks_for(10, [])
