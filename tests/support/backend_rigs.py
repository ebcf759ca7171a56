"""Every attention back end on a batch: what it gives, and what it must give by an oracle in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Generic

import torch
from attention_batches import attend_by_mask
from latent_rigs import IndexRig, LatentRig, SparseRig
from rig_base import CPU, MODEL_LEN, M, Rig, Route, S, Shape, attend, built, drawn_by, inputs_of, rules_of
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.chunked_local import CHUNKED_LOCAL, chunked_local
from genericbuilders.backends.cross import CROSS, ENCODER_ROWS, EncoderRows
from genericbuilders.backends.encoder_only import ENCODER_ONLY
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.flashinfer import FLASHINFER
from genericbuilders.backends.hpc import HPC
from genericbuilders.backends.quantised import quantised_backend
from genericbuilders.backends.quantised_base import quantised_spec
from genericbuilders.backends.sink import SINK, SinkMetadata
from genericbuilders.backends.triton import TRITON
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.kernels import reference
from genericbuilders.kernels.layout import split_kv
from genericbuilders.kernels.quant.formats import FORMATS, slot_format
from genericbuilders.kernels.quant.slots import SlotCodec, read_pages, write_slots
from genericbuilders.keys import TypedMap
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVQuantMode,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
)

__all__ = ["RIGS"]

CHUNK = 8
WINDOW = 5


class PagedRig(Rig, Generic[M, S]):
    """A back end of a plain cache of keys and values."""

    def __init__(
        self,
        adapter: BackendAdapter[M, S],
        spec: Callable[[Shape], S],
        window: int | None = None,
        chunk: int | None = None,
        *,
        scored: bool = False,
    ) -> None:
        super().__init__(adapter.name + "-window" * (window is not None) + "-scored" * scored)
        self.scored = scored
        self.adapter, self.spec, self.window, self.chunk = adapter, spec, window, chunk

    @override
    def takes(self, shape: Shape) -> bool:
        return self.chunk is None or self.chunk % shape.block_size == 0

    @override
    def first_seen(self, position: int) -> int:
        if self.chunk is not None:
            return position // self.chunk * self.chunk
        return 0 if self.window is None else max(0, position - self.window + 1)

    def heads(self, shape: Shape) -> AttentionLayerConfig:
        """The layer."""
        heads = shape.scored(ordered=True) if self.scored else shape.heads
        return replace(heads, sliding_window=self.window, attention_chunk_size=self.chunk)

    def caches(self, clean: CommonAttentionMetadata, shape: Shape, seed: int) -> tuple[Tensor, Tensor]:
        """Keys and values."""
        kept, size = shape.num_kv_heads, shape.head_size
        return self.pages(clean, shape, (kept, size), seed), self.pages(clean, shape, (kept, size), seed + 1)

    @override
    def run(
        self,
        common: CommonAttentionMetadata,
        clean: CommonAttentionMetadata,
        shape: Shape,
        seed: int = 0,
        route: Route = built,
    ) -> Tensor:
        heads = self.heads(shape)
        layer = self.adapter.layer("l0", heads)
        config = EngineConfig(max_model_len=MODEL_LEN, dtype=shape.dtype, layers={"l0": heads})
        group = self.adapter.bind(self.spec(shape), [layer], config, CPU)
        keys, values = self.caches(clean, shape, seed)
        cache = torch.zeros(group.kv_cache_shape(len(keys)), dtype=group.kv_cache_dtype())
        for half, pages in zip(split_kv(cache, heads.kv_cache_layout), (keys, values), strict=True):
            half.copy_(pages)
        query, key, value = inputs_of(common, shape, seed)
        return layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=route(group.builder, common))

    @override
    def expect(self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int = 0) -> Tensor:
        keys, values = (pages.to(dtype) for pages in self.caches(clean, shape, seed))
        query, key, value = (tensor.to(dtype) for tensor in inputs_of(clean, shape, seed))
        reference.write_kv_cache(key, value, keys, values, clean.slot_mapping)
        if self.chunk is not None:
            chunk = self.chunk
            return attend_by_mask(
                clean, query, keys, values, shape.scale, lambda at, to: at // chunk == to // chunk and to <= at
            )
        return attend(clean, query, keys, values, shape.scale, rules_of(self.heads(shape)))


class SinkRig(PagedRig[SinkMetadata, SinkFullAttentionSpec]):
    """Attention behind sinks, whose blocks are the last of the cache; the oracle's rows have them in front.

    Args:
        sink_len: sinks; whole blocks of them and others are computed in different ways.
    """

    def __init__(self, sink_len: int) -> None:
        super().__init__(SINK, self.sink_spec)
        self.name = f"sink-{sink_len}"
        self.sink_len = sink_len

    def sink_spec(self, shape: Shape) -> SinkFullAttentionSpec:
        """A plain cache with room for the sinks."""
        return SinkFullAttentionSpec(
            block_size=shape.block_size,
            num_kv_heads=shape.num_kv_heads,
            head_size=shape.head_size,
            dtype=shape.dtype,
            sink_len=self.sink_len,
        )

    def sinks(self, shape: Shape) -> tuple[Tensor, Tensor]:
        """Their keys and values."""
        key, value = drawn_by(5, 2, self.sink_len, shape.num_kv_heads, shape.head_size).to(shape.dtype).unbind()
        return key, value

    @override
    def run(
        self,
        common: CommonAttentionMetadata,
        clean: CommonAttentionMetadata,
        shape: Shape,
        seed: int = 0,
        route: Route = built,
    ) -> Tensor:
        layer = SINK.layer("l0", shape.heads)
        layer.set_sinks(*self.sinks(shape))
        config = EngineConfig(max_model_len=MODEL_LEN, dtype=shape.dtype, layers={"l0": shape.heads})
        spec = self.sink_spec(shape)
        group = SINK.bind(spec, [layer], config, CPU)
        keys, values = self.caches(clean, shape, seed)
        count = spec.num_shared_blocks
        cache = torch.full(group.kv_cache_shape(len(keys) + count), torch.nan, dtype=group.kv_cache_dtype())
        for half, pages in zip(split_kv(cache, shape.heads.kv_cache_layout), (keys, values), strict=True):
            half[: len(keys)] = pages
        blocks = range(len(keys), len(keys) + count)
        group.fill_shared_blocks({layer: cache}, blocks)
        table = common.block_table_tensor
        front = torch.tensor(blocks, dtype=table.dtype).repeat(len(table), 1)
        # Rows of padding have no sinks, either.
        front[clean.num_reqs :] = table[clean.num_reqs :, :1]
        common = replace(common, block_table_tensor=torch.cat((front, table), 1))
        query, key, value = inputs_of(common, shape, seed)
        return layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=route(group.builder, common))

    @override
    def expect(self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int = 0) -> Tensor:
        keys, values = (pages.to(dtype) for pages in self.caches(clean, shape, seed))
        query, key, value = (tensor.to(dtype) for tensor in inputs_of(clean, shape, seed))
        reference.write_kv_cache(key, value, keys, values, clean.slot_mapping)
        rows = [self._row(clean, row, keys, values, shape, dtype) for row in range(clean.num_reqs)]
        counts = torch.tensor([0, *(len(row_keys) for row_keys, _ in rows)], dtype=torch.int32)
        none = keys.new_empty(0, *keys.shape[2:])
        return reference.varlen_attention(
            query,
            torch.cat([none, *(row_keys for row_keys, _ in rows)]),
            torch.cat([none, *(row_values for _, row_values in rows)]),
            cu_seqlens_q=clean.query_start_loc,
            cu_seqlens_k=counts.cumsum(0).int(),
            max_seqlen_q=clean.max_query_len,
            max_seqlen_k=int(counts.max()),
            scale=shape.scale,
            causal=True,
        )

    def _row(
        self, clean: CommonAttentionMetadata, row: int, keys: Tensor, values: Tensor, shape: Shape, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        length = int(clean.seq_lens[row])
        blocks = clean.block_table_tensor[row, : -(-length // shape.block_size)].long()
        front = slice(0, self.sink_len if length else 0)
        key, value = (sinks.to(dtype)[front] for sinks in self.sinks(shape))
        own = (pages[blocks].flatten(0, 1)[:length] for pages in (keys, values))
        return torch.cat((key, next(own))), torch.cat((value, next(own)))


class QuantisedRig(Rig):
    """A back end of quantised caches, in one mode."""

    def __init__(self, mode: KVQuantMode) -> None:
        super().__init__(f"{quantised_backend(mode).name}-{mode.name.lower()}")
        self.mode = mode

    @override
    def takes(self, shape: Shape) -> bool:
        return shape.head_size >= 16

    def cache(self, clean: CommonAttentionMetadata, shape: Shape, seed: int) -> tuple[Tensor, SlotCodec]:
        """The cache, and how it is coded."""
        codec = SlotCodec(slot_format(self.mode, shape.head_size), CPU)
        keys, values = (self.pages(clean, shape, (shape.num_kv_heads, shape.head_size), seed + i) for i in range(2))
        stored = ~keys.isnan().flatten(0, 1).any(-1).any(-1)
        slots = torch.where(stored, torch.arange(len(stored)), -1)
        cache = torch.full((len(keys), shape.num_kv_heads, shape.block_size, codec.slot.slot_bytes), 255).byte()
        write_slots(keys.flatten(0, 1), values.flatten(0, 1), cache, slots, codec)
        return cache, codec

    @override
    def run(
        self,
        common: CommonAttentionMetadata,
        clean: CommonAttentionMetadata,
        shape: Shape,
        seed: int = 0,
        route: Route = built,
    ) -> Tensor:
        adapter = quantised_backend(self.mode)
        layer = adapter.layer("l0", shape.heads)
        config = EngineConfig(max_model_len=MODEL_LEN, dtype=shape.dtype, layers={"l0": shape.heads})
        group = adapter.bind(quantised_spec(shape.full, self.mode), [layer], config, CPU)
        cache, _ = self.cache(clean, shape, seed)
        query, key, value = inputs_of(common, shape, seed)
        return layer.impl.forward(query, key, value, kv_cache=cache, attn_metadata=route(group.builder, common))

    @override
    def expect(self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int = 0) -> Tensor:
        cache, codec = self.cache(clean, shape, seed)
        query, key, value = inputs_of(clean, shape, seed)
        write_slots(key, value, cache, clean.slot_mapping, codec)
        return attend(clean, query.to(dtype), *read_pages(cache, codec, dtype), shape.scale)


class EncoderRig(Rig):
    """Attention that sees no order of tokens."""

    def __init__(self, name: str, *, scored: bool = False) -> None:
        super().__init__(name + "-scored" * scored)
        self.scored = scored

    def heads(self, shape: Shape) -> AttentionLayerConfig:
        """The layer."""
        return replace(shape.scored(ordered=False) if self.scored else shape.heads, causal=False)


class CrossRig(EncoderRig):
    """Attention over encoder outputs that are stored: as long as the batch's sequences."""

    @override
    def run(
        self,
        common: CommonAttentionMetadata,
        clean: CommonAttentionMetadata,
        shape: Shape,
        seed: int = 0,
        route: Route = built,
    ) -> Tensor:
        heads = self.heads(shape)
        layer = CROSS.layer("l0", heads)
        config = EngineConfig(max_model_len=MODEL_LEN, dtype=shape.dtype, layers={"l0": heads})
        spec = CrossAttentionSpec(
            block_size=shape.block_size, num_kv_heads=shape.num_kv_heads, head_size=shape.head_size, dtype=shape.dtype
        )
        group = CROSS.bind(spec, [layer], config, CPU, (ENCODER_ROWS,))
        cache = torch.zeros(group.kv_cache_shape(len(self._pages(clean, shape, seed)[0])), dtype=shape.dtype)
        for half, pages in zip(split_kv(cache, heads.kv_cache_layout), self._pages(clean, shape, seed), strict=True):
            half.copy_(pages)
        inputs = TypedMap()
        none = torch.zeros(len(common.seq_lens), dtype=torch.bool)
        inputs.put(ENCODER_ROWS, EncoderRows(common.seq_lens, common.seq_lens_cpu, none))
        query, key, value = inputs_of(common, shape, seed)
        common = replace(common, inputs=inputs, slot_mapping=common.slot_mapping[:0])
        metadata = route(group.builder, common)
        return layer.impl.forward(query, key[:0], value[:0], kv_cache=cache, attn_metadata=metadata)

    @override
    def expect(self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int = 0) -> Tensor:
        keys, values = (pages.to(dtype) for pages in self._pages(clean, shape, seed))
        query, _, _ = inputs_of(clean, shape, seed)
        return attend(
            replace(clean, causal=False), query.to(dtype), keys, values, shape.scale, rules_of(self.heads(shape))
        )

    def _pages(self, clean: CommonAttentionMetadata, shape: Shape, seed: int) -> tuple[Tensor, Tensor]:
        sizes = (shape.num_kv_heads, shape.head_size)
        return self.pages(clean, shape, sizes, seed), self.pages(clean, shape, sizes, seed + 1)


class EncoderOnlyRig(EncoderRig):
    """Attention without a cache: what a row has computed before is forgotten, so that it must be nothing."""

    @override
    def run(
        self,
        common: CommonAttentionMetadata,
        clean: CommonAttentionMetadata,
        shape: Shape,
        seed: int = 0,
        route: Route = built,
    ) -> Tensor:
        heads = self.heads(shape)
        layer = ENCODER_ONLY.layer("l0", heads)
        config = EngineConfig(max_model_len=MODEL_LEN, dtype=shape.dtype, layers={"l0": heads})
        spec = EncoderOnlyAttentionSpec(
            block_size=shape.block_size, num_kv_heads=shape.num_kv_heads, head_size=shape.head_size, dtype=shape.dtype
        )
        group = ENCODER_ONLY.bind(spec, [layer], config, CPU)
        query, key, value = inputs_of(common, shape, seed)
        metadata = route(group.builder, common)
        return layer.impl.forward(query, key, value, kv_cache=query.new_empty(0), attn_metadata=metadata)

    @override
    def expect(self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int = 0) -> Tensor:
        query, key, value = (tensor.to(dtype) for tensor in inputs_of(clean, shape, seed))
        return reference.varlen_attention(
            query,
            key,
            value,
            cu_seqlens_q=clean.query_start_loc,
            cu_seqlens_k=clean.query_start_loc,
            max_seqlen_q=clean.max_query_len,
            max_seqlen_k=clean.max_query_len,
            scale=shape.scale,
            causal=False,
            scoring=rules_of(self.heads(shape)),
        )


def window_spec(shape: Shape) -> SlidingWindowSpec:
    """A plain cache of a window."""
    return SlidingWindowSpec(
        block_size=shape.block_size,
        num_kv_heads=shape.num_kv_heads,
        head_size=shape.head_size,
        dtype=shape.dtype,
        sliding_window=WINDOW,
    )


def chunk_spec(shape: Shape) -> ChunkedLocalAttentionSpec:
    """A plain cache of a chunk."""
    return ChunkedLocalAttentionSpec(
        block_size=shape.block_size,
        num_kv_heads=shape.num_kv_heads,
        head_size=shape.head_size,
        dtype=shape.dtype,
        attention_chunk_size=CHUNK,
    )


def full_spec(shape: Shape) -> FullAttentionSpec:
    """A plain cache of all tokens."""
    return shape.full


RIGS: tuple[Rig, ...] = (
    PagedRig(FLASH_ATTN, full_spec),
    PagedRig(FLASH_ATTN, window_spec, window=WINDOW),
    PagedRig(FLASHINFER, full_spec),
    PagedRig(FLASHINFER, window_spec, window=WINDOW),
    PagedRig(TRITON, full_spec),
    PagedRig(TRITON, window_spec, window=WINDOW),
    PagedRig(HPC, full_spec),
    PagedRig(FLASH_ATTN, full_spec, scored=True),
    PagedRig(FLASH_ATTN, window_spec, window=WINDOW, scored=True),
    PagedRig(FLASHINFER, full_spec, scored=True),
    PagedRig(TRITON, full_spec, scored=True),
    PagedRig(HPC, full_spec, scored=True),
    PagedRig(CHUNKED_LOCAL, chunk_spec, chunk=CHUNK),
    PagedRig(chunked_local(FLASHINFER), chunk_spec, chunk=CHUNK),
    PagedRig(chunked_local(TRITON), chunk_spec, chunk=CHUNK),
    PagedRig(chunked_local(HPC), chunk_spec, chunk=CHUNK),
    EncoderOnlyRig("encoder_only"),
    EncoderOnlyRig("encoder_only", scored=True),
    CrossRig("cross"),
    CrossRig("cross", scored=True),
    SinkRig(4),
    SinkRig(3),
    LatentRig("mla"),
    LatentRig("mla", drafts=3),
    SparseRig("mla_sparse"),
    SparseRig("mla_sparse", drafts=3),
    IndexRig("indexer"),
    *(QuantisedRig(mode) for mode in FORMATS),
)
