"""Back ends of one paged batch: wrapped as chunked local, each gives what the built-in one does."""

from __future__ import annotations

import torch
from attention_batches import make_batch
from torch import Tensor
from typing_extensions import TypeVar

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.chunked_local import CHUNKED_LOCAL, ChunkedSpec, chunked_local
from genericbuilders.backends.flashinfer import FLASHINFER
from genericbuilders.backends.hpc import HPC
from genericbuilders.backends.triton import TRITON
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.specs import ChunkedLocalAttentionSpec

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
