from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

import pytest
import torch
from toy_backends import CONFIG, CPU, STATE_SPEC, DenseBuilder, DenseImpl, DenseMetadata, state_adapter
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.cache import allocate_kv_caches, allocate_shared_kv_caches, copy_blocks, zero_blocks
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


def test_each_group_has_as_many_blocks_as_it_is_given() -> None:
    full = PAGED.bind(spec_of(), [PAGED.layer("l0", heads()), PAGED.layer("l1", heads())], CONFIG, CPU)
    half = PAGED.bind(spec_of(torch.bfloat16), [PAGED.layer("l2", heads())], CONFIG, CPU)
    caches = allocate_kv_caches([full, half], [5, 3], CPU)
    sizes = {layer.name: cache.untyped_storage().nbytes() for layer, cache in caches.items()}
    assert sizes == {"l0": 5 * 512, "l1": 5 * 512, "l2": 3 * 256}
    with pytest.raises(ValueError, match="1 numbers of blocks were given for 2 groups"):
        allocate_kv_caches([full, half], [5], CPU)


@pytest.mark.parametrize("layout", list(KVCacheLayout))
def test_case_08_each_group_is_zeroed_and_copied_by_its_own_page_size(layout: KVCacheLayout) -> None:
    # Pages of p and 2p bytes, each in a buffer of its own.
    small = PAGED.bind(spec_of(torch.bfloat16), [PAGED.layer("target", heads(layout))], CONFIG, CPU)
    large = PAGED.bind(spec_of(torch.float32), [PAGED.layer("draft", heads(layout))], CONFIG, CPU)
    assert 2 * small.spec.page_size_bytes == large.spec.page_size_bytes
    caches = allocate_kv_caches([small, large], [6, 4], CPU)
    by_block: dict[str, torch.Tensor] = {}
    for layer, cache in caches.items():
        pages = cache if layout is KVCacheLayout.BLOCK_FIRST else cache.transpose(0, 1)
        pages.copy_(torch.arange(1, len(pages) + 1)[:, None, None, None, None].expand(pages.shape))
        by_block[layer.name] = pages

    def marks(name: str) -> list[float]:
        pages = by_block[name].float().flatten(1)
        assert (pages == pages[:, :1]).all()
        return [float(mark) for mark in pages[:, 0]]

    zero_blocks(small, caches, [1, 3])
    assert (marks("target"), marks("draft")) == ([1, 0, 3, 0, 5, 6], [1, 2, 3, 4])
    zero_blocks(large, caches, [3])
    assert (marks("target"), marks("draft")) == ([1, 0, 3, 0, 5, 6], [1, 2, 3, 0])
    # All are read before any is written: two blocks change places.
    copy_blocks(large, caches, [0, 1], [1, 0])
    copy_blocks(small, caches, [5], [1])
    assert (marks("target"), marks("draft")) == ([1, 6, 3, 0, 5, 6], [2, 1, 3, 0])
    with pytest.raises(ValueError, match="2 blocks cannot be copied to 1"):
        copy_blocks(small, caches, [1, 2], [3])


def test_groups_of_one_pool_lie_in_the_same_buffers_page_for_page() -> None:
    attention = PAGED.bind(spec_of(), [PAGED.layer(name, heads()) for name in ("a0", "a1")], CONFIG, CPU)
    adapter = state_adapter()
    state = adapter.bind(STATE_SPEC, [adapter.layer(name, heads()) for name in ["s0"]], CONFIG, CPU)
    page = 576
    caches = allocate_shared_kv_caches([attention, state], NUM_BLOCKS, page, CPU)
    by_name = {layer.name: cache for layer, cache in caches.items()}
    storages = {cache.untyped_storage().data_ptr() for cache in caches.values()}
    assert len(storages) == 2
    assert sum(caches[layer].untyped_storage().nbytes() for layer in attention.layers) == 2 * NUM_BLOCKS * page
    by_name["a0"][2] = 1.0
    assert by_name["s0"][2].any()
    assert not by_name["s0"][[0, 1, 3, 4]].any()
    assert not by_name["a1"].any()
    by_name["a1"][2] = 1.0
    # Block 2 goes to the states and comes back: only their own pages are cleared, and nothing of another block.
    zero_blocks(state, caches, [2])
    assert not by_name["s0"].any()
    assert by_name["a1"][2].all()
    zero_blocks(attention, caches, [2])
    assert not any(cache.any() for cache in caches.values())
    with pytest.raises(ValueError, match="has 512 bytes, more than the 256"):
        allocate_shared_kv_caches([attention, state], NUM_BLOCKS, 256, CPU)
