from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from genericbuilders.specs import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
    MambaSpec,
    UniformTypeKVCacheSpecs,
)

# A page is 2 heads x 16 tokens x 128 elements x 4 bytes = 16,384 bytes.
FULL = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32)
HALF = replace(FULL, dtype=torch.bfloat16)
STATE = MambaSpec(32, ((3, 8),), (torch.float32,))
GROUP = KVCacheGroupSpec(("a", "b"), FULL)


def test_group_counts_all_layers() -> None:
    assert GROUP.block_bytes == 32_768
    wrapped = UniformTypeKVCacheSpecs(16, {"a": FULL, "b": HALF})
    assert KVCacheGroupSpec(("a", "b"), wrapped).block_bytes == 16_384 + 8_192


def test_08_groups_have_pages_of_their_own() -> None:
    config = KVCacheConfig(4, (), (GROUP, KVCacheGroupSpec(("draft",), HALF)))
    assert [group.layer_specs[group.layer_names[0]].page_size_bytes for group in config.kv_cache_groups] == [
        16_384,
        8_192,
    ]
    assert config.has_mixed_precision_kv_cache
    assert config.needs_kv_cache_zeroing


def test_pages_lie_where_the_strides_say() -> None:
    layer_first = KVCacheTensor(4 * 2 * 16_384, ("a", "b"), layer_stride=4 * 16_384, block_stride=16_384)
    assert layer_first.page_start("b", 3) == 7 * 16_384
    block_first = KVCacheTensor(4 * 2 * 16_384 + 64, ("a", "b"), 16_384, 2 * 16_384, offset=64)
    assert block_first.page_start("b", 3) == 64 + 7 * 16_384
    for tensor in (layer_first, block_first):
        config = KVCacheConfig(4, (tensor,), (GROUP,))
        assert not config.needs_kv_cache_zeroing
        assert config.group_of("b") == 0
        assert hash(config) == hash(replace(config))
    with pytest.raises(ValueError, match=r"5 blocks of layer 'b' end at byte 147456, beyond the 131072 bytes"):
        KVCacheConfig(5, (layer_first,), (GROUP,))


def test_states_need_clearing() -> None:
    config = KVCacheConfig(4, (), (GROUP, KVCacheGroupSpec(("s",), STATE)))
    assert config.has_mamba_layers
    assert not config.has_mixed_precision_kv_cache
    assert config.needs_kv_cache_zeroing


def test_bad_groups() -> None:
    with pytest.raises(ValueError, match="layer_names is empty"):
        KVCacheGroupSpec((), FULL)
    with pytest.raises(ValueError, match=r"layers \['a'\] are named more than once"):
        KVCacheGroupSpec(("a", "a"), FULL)
    with pytest.raises(ValueError, match=r"layers \['b', 'c'\] are in only one of"):
        KVCacheGroupSpec(("a", "b"), UniformTypeKVCacheSpecs(16, {"a": FULL, "c": FULL}))


def test_bad_tensors() -> None:
    with pytest.raises(ValueError, match="layers is empty"):
        KVCacheTensor(1, (), 1, 1)
    with pytest.raises(ValueError, match="block_stride is 0 bytes"):
        KVCacheTensor(1, ("a",), 1, 0)
    with pytest.raises(ValueError, match="offset 8 is not within the 8 bytes"):
        KVCacheTensor(8, ("a",), 1, 1, offset=8)
    with pytest.raises(ValueError, match=r"layer 'z' is not in this tensor"):
        KVCacheTensor(8, ("a",), 1, 1).page_start("z", 0)


def test_bad_configs() -> None:
    with pytest.raises(ValueError, match="num_blocks is 0 blocks"):
        KVCacheConfig(0, (), ())
    with pytest.raises(ValueError, match="layer 'a' is in two groups"):
        KVCacheConfig(4, (), (GROUP, KVCacheGroupSpec(("a",), FULL)))
    with pytest.raises(ValueError, match="a tensor serves layer 'z', which is in no group"):
        KVCacheConfig(4, (KVCacheTensor(8, ("z",), 1, 1),), (GROUP,))
    with pytest.raises(ValueError, match="layer 'z' is in none of the 1 groups"):
        KVCacheConfig(4, (), (GROUP,)).group_of("z")
