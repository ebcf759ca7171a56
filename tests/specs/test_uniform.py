from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import torch

from genericbuilders.config import EngineConfig
from genericbuilders.specs import (
    FrozenMapping,
    FullAttentionSpec,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    SpecMergeError,
    UniformTypeKVCacheSpecs,
    iter_layer_specs,
)

CONFIG = EngineConfig(max_model_len=100)
SMALL = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=64, dtype=torch.float32)
LARGE = FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=64, dtype=torch.bfloat16)
STATE = MambaSpec(32, ((3, 8),), (torch.float32,))
WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float32, sliding_window=8)


def wrap(**layers: KVCacheSpec) -> UniformTypeKVCacheSpecs:
    wrapped = UniformTypeKVCacheSpecs.from_specs(layers)
    assert wrapped is not None
    return wrapped


def test_a_block_takes_a_page_in_every_layer() -> None:
    wrapped = wrap(a=SMALL, b=LARGE)
    # 16 x 128 x 4 = 8,192 and 8 x 16 x 128 x 2 = 32,768
    assert wrapped.page_size_bytes == 40_960
    assert wrapped.max_memory_usage_bytes(CONFIG) == 7 * 40_960
    assert wrapped.max_num_blocks_per_req(CONFIG, 17) == 2
    assert wrapped.num_shared_blocks == 0


def test_every_layer_is_re_blocked_by_its_own_rule() -> None:
    wrapped = wrap(a=SMALL, b=LARGE).copy_with_new_block_size(8)
    assert wrapped.page_size_bytes == 20_480
    assert {spec.block_size for spec in iter_layer_specs(wrapped)} == {8}
    states = wrap(a=STATE, b=replace(STATE, shapes=((4, 8),)))
    assert states.copy_with_new_block_size(8).page_size_bytes == states.page_size_bytes


def test_layers_that_hold_other_blocks_are_refused() -> None:
    assert UniformTypeKVCacheSpecs.from_specs({"a": SMALL, "b": WINDOW}) is None
    assert UniformTypeKVCacheSpecs.from_specs({"a": SMALL, "b": SMALL.copy_with_new_block_size(8)}) is None
    assert UniformTypeKVCacheSpecs.from_specs({}) is None
    assert UniformTypeKVCacheSpecs.from_specs({"a": wrap(b=SMALL)}) is None
    with pytest.raises(ValueError, match=r"hold different blocks \(layer 'a': FullAttentionSpec; layer 'b': Sli"):
        UniformTypeKVCacheSpecs(16, {"a": SMALL, "b": WINDOW})
    with pytest.raises(ValueError, match=r"block_size is 8 tokens, but layer 'a' has 16"):
        UniformTypeKVCacheSpecs(8, {"a": SMALL})
    with pytest.raises(ValueError, match="kv_cache_specs is empty"):
        UniformTypeKVCacheSpecs(8, {})
    with pytest.raises(ValueError, match="layer 'a' is wrapped already"):
        UniformTypeKVCacheSpecs(16, {"a": wrap(b=SMALL)})


def test_uniform_with_the_same_layers_as_from_specs() -> None:
    latent = MLAAttentionSpec(block_size=16, num_kv_heads=1, head_size=64, dtype=torch.float32)
    assert SMALL.is_uniform_with_collection({"a": LARGE, "b": latent})
    assert not SMALL.is_uniform_with_collection({"a": LARGE, "b": WINDOW})
    assert not WINDOW.is_uniform_with_collection({"a": replace(WINDOW, sliding_window=9)})
    assert wrap(a=SMALL, b=latent).page_size_bytes == SMALL.page_size_bytes + latent.page_size_bytes


def test_wrapper_is_a_value() -> None:
    layers: dict[str, KVCacheSpec] = {"a": SMALL, "b": LARGE}
    wrapped = UniformTypeKVCacheSpecs(16, layers)
    layers["c"] = WINDOW
    assert list(wrapped.kv_cache_specs) == ["a", "b"]
    assert hash(wrapped) == hash(wrap(b=LARGE, a=SMALL))
    assert pickle.loads(pickle.dumps(wrapped)) == wrapped
    with pytest.raises(TypeError):
        wrapped.kv_cache_specs["c"] = WINDOW  # type: ignore[index]  # pyright: ignore[reportIndexIssue] - a Mapping cannot be written


def test_equal_wrappers_merge_and_others_are_refused() -> None:
    wrapped = wrap(a=SMALL, b=LARGE)
    assert UniformTypeKVCacheSpecs.merge([wrapped, wrap(b=LARGE, a=SMALL)]) == wrapped
    with pytest.raises(SpecMergeError) as caught:
        UniformTypeKVCacheSpecs.merge([wrapped, wrap(a=SMALL)])
    assert caught.value.field_names == ("kv_cache_specs",)


def test_frozen_mapping() -> None:
    frozen = FrozenMapping({"a": 1, "b": 2})
    assert frozen == {"b": 2, "a": 1}
    assert repr(frozen) == "FrozenMapping({'a': 1, 'b': 2})"
    assert hash(FrozenMapping({"b": 2, "a": 1})) == hash(frozen)
    assert len(frozen) == 2
    assert pickle.loads(pickle.dumps(frozen)) == frozen


def test_29_group_unwraps_per_layer() -> None:
    other = replace(STATE, shapes=((4, 8),))
    group = KVCacheGroupSpec(("b", "a"), wrap(a=STATE, b=other))
    assert not isinstance(group.kv_cache_spec, MambaSpec)
    assert list(group.layer_specs.items()) == [("b", other), ("a", STATE)]
    assert all(isinstance(spec, MambaSpec) for spec in iter_layer_specs(group.kv_cache_spec))
    assert list(iter_layer_specs(STATE)) == [STATE]
