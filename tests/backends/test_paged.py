"""Back ends of one paged batch: wrapped as chunked local, each gives what the built-in one does."""

from __future__ import annotations

import types

import pytest
import torch
from attention_batches import make_batch
from torch import Tensor
from typing_extensions import TypeVar

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.chunked_local import CHUNKED_LOCAL, ChunkedSpec, chunked_local
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.flashinfer import FLASHINFER
from genericbuilders.backends.fp8_kv import FP8_KV
from genericbuilders.backends.hpc import HPC
from genericbuilders.backends.paged import PagedImpl
from genericbuilders.backends.quantised_base import quantised_spec
from genericbuilders.backends.triton import TRITON
from genericbuilders.backends.turboquant import TURBOQUANT
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.specs import ChunkedLocalAttentionSpec, FullAttentionSpec, KVQuantMode

M = TypeVar("M")


def attend(adapter: BackendAdapter[M, ChunkedSpec]) -> Tensor:
    heads = AttentionLayerConfig(8, 2, 128, 128**-0.5, attention_chunk_size=8)
    spec = ChunkedLocalAttentionSpec(
        block_size=4, num_kv_heads=2, head_size=128, dtype=torch.float32, attention_chunk_size=8
    )
    layer = adapter.layer("l0", heads)
    group = adapter.bind(spec, [layer], EngineConfig(max_model_len=128, layers={"l0": heads}), torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(10, 8, 128, generator=generator)
    key, value = torch.randn(2, 10, 2, 128, generator=generator).unbind()
    cache = torch.randn(group.kv_cache_shape(12), generator=generator)
    return layer.impl.forward(query, key, value, cache, group.builder.build(0, make_batch([1, 9], [13, 7], 4)))


def test_chunked_local_wraps_each_of_them() -> None:
    expected = attend(CHUNKED_LOCAL)
    assert expected.any()
    assert torch.equal(attend(chunked_local(FLASHINFER)), expected)
    assert torch.equal(attend(chunked_local(TRITON)), expected)
    assert torch.equal(attend(chunked_local(HPC)), expected)


@pytest.mark.parametrize(
    "adapter", [FLASH_ATTN, FLASHINFER, HPC, TRITON, FP8_KV, TURBOQUANT], ids=lambda each: each.name
)
def test_a_token_brings_both_or_neither(adapter: BackendAdapter[object, FullAttentionSpec]) -> None:
    heads = AttentionLayerConfig(4, 2, 64, 64**-0.5)
    modes = {FP8_KV.name: KVQuantMode.FP8_PER_TENSOR, TURBOQUANT.name: KVQuantMode.TURBOQUANT_4BIT_NC}
    plain = FullAttentionSpec(block_size=4, num_kv_heads=2, head_size=64, dtype=torch.float32)
    spec = quantised_spec(plain, modes[adapter.name]) if adapter.name in modes else plain
    layer = adapter.layer("l0", heads)
    group = adapter.bind(spec, [layer], EngineConfig(max_model_len=128, layers={"l0": heads}), torch.device("cpu"))
    cache = torch.zeros(group.kv_cache_shape(12), dtype=group.kv_cache_dtype())
    made = group.builder.build(0, make_batch([1, 3], [13, 7], 4))
    query, key = torch.randn(4, 4, 64), torch.randn(3, 2, 64)
    with pytest.raises(ValueError, match="there are queries of 4 tokens and keys of 3"):
        layer.impl.forward(query, key, key, cache, made)


@pytest.mark.parametrize(("name", "other"), [("forward", "forward_rotary"), ("forward_rotary", "forward")])
def test_what_both_ways_lead_to_is_overridden_or_both(name: str, other: str) -> None:
    """A back end that overrides one alone would be asked another, and not be heard."""

    def body(namespace: dict[str, object]) -> None:
        namespace[name] = None

    with pytest.raises(TypeError, match=rf"Mine overrides {name}\(\) and not {other}\(\), which models call"):
        types.new_class("Mine", (PagedImpl,), exec_body=body)
    types.new_class("Mine", (PagedImpl,), exec_body=lambda namespace: namespace.update(attend=None))
    types.new_class("Mine", (PagedImpl,), exec_body=lambda namespace: namespace.update({name: None, other: None}))


def test_one_way_may_change_where_both_are_overridden_above() -> None:
    both = types.new_class("Both", (PagedImpl,), exec_body=lambda each: each.update(forward=None, forward_rotary=None))
    types.new_class("Mine", (both,), exec_body=lambda each: each.update(forward=None))
