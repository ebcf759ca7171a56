"""vLLM's caches as this library's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genericbuilders.config import KVCacheLayout
from genericbuilders.kernels.layout import split_kv
from genericbuilders_vllm.inside.convert import convert_cache

SIZES = st.integers(1, 5)


@given(num_blocks=SIZES, heads=SIZES, block_size=SIZES, head_size=SIZES, pad=st.integers(0, 3))
def test_a_cache_is_a_view_of_the_same_blocks(
    num_blocks: int, heads: int, block_size: int, head_size: int, pad: int
) -> None:
    page = heads * block_size * 2 * head_size
    memory = torch.arange(num_blocks * (page + pad))
    theirs = memory.as_strided(
        (num_blocks, heads, block_size, 2 * head_size),
        (page + pad, block_size * 2 * head_size, 2 * head_size, 1),
    )
    ours = convert_cache(theirs)
    assert ours.shape == (num_blocks, 2, heads, block_size, head_size)
    assert ours.data_ptr() == theirs.data_ptr()
    # Every element of a block is a key or a value of that block, once.
    for block in range(num_blocks):
        assert torch.equal(ours[block].flatten().sort().values, theirs[block].flatten())
    # A head's keys follow each other, and so do its values: what the kernels read is contiguous.
    keys, values = split_kv(ours, KVCacheLayout.BLOCK_FIRST)
    for part in (keys, values):
        assert part.shape == (num_blocks, block_size, heads, head_size)
        assert part[0, :, 0].is_contiguous()
    ours[-1, 1, -1, -1, -1] = -7
    assert memory[(num_blocks - 1) * (page + pad) + page - 1] == -7


@pytest.mark.parametrize(
    "theirs",
    [
        torch.zeros(4, 3, 8, 16).transpose(1, 2),
        torch.zeros(4, 3, 8, 15),
        torch.zeros(4, 3, 8),
        torch.zeros(4, 3, 8, 32)[..., :16],
        torch.zeros(4, 3, 8, 32)[..., ::2],
    ],
    ids=["tokens first", "odd", "three axes", "padded tokens", "strided"],
)
def test_another_cache_is_refused(theirs: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"vLLM's cache has shape \(4, "):
        convert_cache(theirs)
