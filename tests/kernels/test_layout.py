from __future__ import annotations

import pytest
import torch

from genericbuilders.config import KVCacheLayout
from genericbuilders.kernels.layout import split_kv

HEADS, BLOCK_SIZE, HEAD_SIZE = 4, 5, 6


def shape(layout: KVCacheLayout, num_blocks: int) -> tuple[int, ...]:
    front = (num_blocks, 2) if layout is KVCacheLayout.BLOCK_FIRST else (2, num_blocks)
    return (*front, HEADS, BLOCK_SIZE, HEAD_SIZE)


@pytest.mark.parametrize("layout", KVCacheLayout)
@pytest.mark.parametrize("num_blocks", [1, 2, 3])
def test_views_have_logical_axes_and_write_through(layout: KVCacheLayout, num_blocks: int) -> None:
    cache = torch.zeros(shape(layout, num_blocks))
    key, value = split_kv(cache, layout)
    assert key.shape == value.shape == (num_blocks, BLOCK_SIZE, HEADS, HEAD_SIZE)
    assert key.stride(-1) == value.stride(-1) == 1
    key[num_blocks - 1, 2, 3, 4] = 1.0
    value[0, 4, 0, 5] = 2.0
    if layout is KVCacheLayout.BLOCK_FIRST:
        assert cache[num_blocks - 1, 0, 3, 2, 4] == 1.0
        assert cache[0, 1, 0, 4, 5] == 2.0
    else:
        assert cache[0, num_blocks - 1, 3, 2, 4] == 1.0
        assert cache[1, 0, 0, 4, 5] == 2.0
    assert cache.sum() == 3.0


def test_two_layouts_in_one_group_are_each_read_by_their_own() -> None:
    # Two blocks: the shapes are equal, so only the layout tells them apart (case 24).
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(2, BLOCK_SIZE, HEADS, HEAD_SIZE, generator=generator)
    values = torch.randn(2, BLOCK_SIZE, HEADS, HEAD_SIZE, generator=generator)
    caches = {layout: torch.full(shape(layout, 2), float("nan")) for layout in KVCacheLayout}
    for layout, cache in caches.items():
        key, value = split_kv(cache, layout)
        key.copy_(keys)
        value.copy_(values)
    first, second = caches.values()
    assert first.shape == second.shape
    assert not torch.equal(first, second)
    for layout, cache in caches.items():
        key, value = split_kv(cache, layout)
        assert torch.equal(key, keys)
        assert torch.equal(value, values)
