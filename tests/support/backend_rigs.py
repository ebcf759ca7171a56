"""Every attention back end on a batch: what it gives, and what it must give by an oracle in float64."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol

import torch
from attention_batches import attend_by_mask, ints
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.chunked_local import CHUNKED_LOCAL, chunked_local
from genericbuilders.backends.cross import CROSS, ENCODER_ROWS, EncoderRows
from genericbuilders.backends.encoder_only import ENCODER_ONLY
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.flashinfer import FLASHINFER
from genericbuilders.backends.hpc import HPC
from genericbuilders.backends.indexer import INDEXER, IndexerInputs
from genericbuilders.backends.mla import MLA, MLAInputs
from genericbuilders.backends.mla_sparse import MLA_SPARSE, MLASparseInputs
from genericbuilders.backends.quantised import quantised_backend
from genericbuilders.backends.quantised_base import quantised_spec
from genericbuilders.backends.triton import TRITON
from genericbuilders.builder import AttentionMetadataBuilder
from genericbuilders.config import AttentionLayerConfig, EngineConfig, LatentLayerConfig
from genericbuilders.kernels import reference
from genericbuilders.kernels.layout import split_kv
from genericbuilders.kernels.quant.formats import FORMATS, slot_format
from genericbuilders.kernels.quant.slots import SlotCodec, read_pages, write_slots
from genericbuilders.kernels.scoring import PLAIN, Scoring
from genericbuilders.kernels.sparse import reference as sparse_reference
from genericbuilders.keys import TypedMap
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.sparse_config import IndexLayerConfig, SparseLatentLayerConfig
from genericbuilders.specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    KVQuantMode,
    MLAAttentionSpec,
    SlidingWindowSpec,
)

__all__ = ["CHUNK", "RIGS", "TOPK", "WINDOW", "Rig", "Route", "Shape", "built"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)

CPU = torch.device("cpu")
CHUNK = 8
WINDOW = 5
TOPK = 4
MODEL_LEN = 4096
# Tokens that random inputs are drawn for: a batch's inputs are their front, padded or not.
TOKENS = 64
RANK, ROPE, NOPE, VALUE = 12, 4, 6, 5


@dataclass(frozen=True)
class Shape:
    """What a rig is made of, beside its back end.

    Attributes:
        block_size: tokens in a block.
        dtype: of inputs and plain caches: float32 runs the compiled kernels, float64 the portable ones.
        num_heads: query heads.
        num_kv_heads: key-value heads; back ends with one vector for all heads have none.
        head_size: elements of a head.
    """

    block_size: int = 4
    dtype: torch.dtype = torch.float32
    num_heads: int = 4
    num_kv_heads: int = 2
    head_size: int = 16

    @property
    def scale(self) -> float:
        """Factor on the scores."""
        return self.head_size**-0.5

    @property
    def heads(self) -> AttentionLayerConfig:
        """A layer of full attention."""
        return AttentionLayerConfig(self.num_heads, self.num_kv_heads, self.head_size, self.scale)

    @property
    def full(self) -> FullAttentionSpec:
        """A plain cache of all tokens."""
        return FullAttentionSpec(
            block_size=self.block_size, num_kv_heads=self.num_kv_heads, head_size=self.head_size, dtype=self.dtype
        )


class Route(Protocol):
    """A way from a batch to its metadata."""

    def __call__(self, builder: AttentionMetadataBuilder[M, S], common: CommonAttentionMetadata) -> M:
        """The metadata of ``common``."""
        ...


def built(builder: AttentionMetadataBuilder[M, S], common: CommonAttentionMetadata) -> M:
    """The ordinary way."""
    return builder.build(0, common)


class Rig(ABC):
    """One back end over a cache of random numbers, the same for every batch of one ``clean`` batch and seed.

    What no row of ``clean`` has stored is NaN in the cache, or bytes that stand for it.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def run(
        self,
        common: CommonAttentionMetadata,
        clean: CommonAttentionMetadata,
        shape: Shape,
        seed: int = 0,
        route: Route = built,
    ) -> Tensor:
        """Build and compute ``common``, over the cache of ``clean``."""

    @abstractmethod
    def expect(self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int = 0) -> Tensor:
        """What ``clean`` must give, by definition, computed in ``dtype``."""

    def first_seen(self, position: int) -> int:
        """The first position that a token at ``position`` sees. Unless overridden: 0."""
        return 0

    def takes(self, shape: Shape) -> bool:
        """Whether the back end has layers of a shape. Unless overridden: any."""
        return True

    def pages(self, clean: CommonAttentionMetadata, shape: Shape, sizes: Sequence[int], seed: int) -> Tensor:
        """``[num_blocks, block_size, *sizes]``, NaN where no row has stored anything that it still sees."""
        num_blocks, size = 1 + max([0, *ints(clean.block_table_tensor.flatten())]), shape.block_size
        stored = torch.zeros(num_blocks, size, dtype=torch.bool)
        starts = ints(clean.query_start_loc_cpu)
        for row, length in enumerate(ints(clean.seq_lens_cpu)):
            new = starts[row + 1] - starts[row]
            for place in range(self.first_seen(length - new), length) if new else ():
                stored[int(clean.block_table_tensor[row, place // size]), place % size] = True
        drawn = drawn_by(seed + 1, num_blocks, size, *sizes).to(shape.dtype)
        return torch.where(stored.view(num_blocks, size, *[1] * len(sizes)), drawn, torch.nan)


def drawn_by(seed: int, *sizes: int) -> Tensor:
    """Random normal numbers."""
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


def inputs_of(common: CommonAttentionMetadata, shape: Shape, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of every token, padding included."""
    tokens, heads, kept, size = len(common.slot_mapping), shape.num_heads, shape.num_kv_heads, shape.head_size
    query = drawn_by(seed, TOKENS, heads, size)[:tokens]
    key, value = drawn_by(seed + 7, 2, TOKENS, kept, size)[:, :tokens].unbind()
    return query.to(shape.dtype), key.to(shape.dtype), value.to(shape.dtype)


class PagedRig(Rig, Generic[M, S]):
    """A back end of a plain cache of keys and values."""

    def __init__(
        self,
        adapter: BackendAdapter[M, S],
        spec: Callable[[Shape], S],
        window: int | None = None,
        chunk: int | None = None,
    ) -> None:
        super().__init__(adapter.name if window is None else f"{adapter.name}-window")
        self.adapter, self.spec, self.window, self.chunk = adapter, spec, window, chunk

    @override
    def takes(self, shape: Shape) -> bool:
        return self.chunk is None or self.chunk % shape.block_size == 0

    @override
    def first_seen(self, position: int) -> int:
        if self.chunk is not None:
            return position // self.chunk * self.chunk
        return 0 if self.window is None else max(0, position - self.window + 1)

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
        heads = replace(shape.heads, sliding_window=self.window, attention_chunk_size=self.chunk)
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
        return attend(clean, query, keys, values, shape.scale, Scoring(sliding_window=self.window))


def attend(
    clean: CommonAttentionMetadata, query: Tensor, keys: Tensor, values: Tensor, scale: float, scoring: Scoring = PLAIN
) -> Tensor:
    """The oracle for paged caches, causal if the batch is."""
    return reference.paged_attention(
        query,
        keys,
        values,
        query_start_loc=clean.query_start_loc,
        seq_lens=clean.seq_lens,
        block_table=clean.block_table_tensor,
        scale=scale,
        causal=clean.causal,
        scoring=scoring,
    )


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


class CrossRig(Rig):
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
        heads = replace(shape.heads, causal=False)
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
        return attend(replace(clean, causal=False), query.to(dtype), keys, values, shape.scale)

    def _pages(self, clean: CommonAttentionMetadata, shape: Shape, seed: int) -> tuple[Tensor, Tensor]:
        sizes = (shape.num_kv_heads, shape.head_size)
        return self.pages(clean, shape, sizes, seed), self.pages(clean, shape, sizes, seed + 1)


class EncoderOnlyRig(Rig):
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
        heads = replace(shape.heads, causal=False)
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
        )


def latent_inputs(common: CommonAttentionMetadata, shape: Shape, seed: int) -> MLAInputs:
    """What a layer of latent attention brings."""
    tokens = len(common.slot_mapping)
    return MLAInputs(
        drawn_by(seed, TOKENS, shape.num_heads, NOPE + ROPE)[:tokens].to(shape.dtype),
        drawn_by(seed + 7, TOKENS, RANK + ROPE)[:tokens].to(shape.dtype),
        drawn_by(seed + 8, shape.num_heads, NOPE + VALUE, RANK).mul(0.3).to(shape.dtype),
    )


def latent_spec(shape: Shape) -> MLAAttentionSpec:
    """A cache of latent vectors."""
    return MLAAttentionSpec(block_size=shape.block_size, num_kv_heads=1, head_size=RANK + ROPE, dtype=shape.dtype)


class LatentRig(Rig):
    """Dense latent attention."""

    @override
    def run(
        self,
        common: CommonAttentionMetadata,
        clean: CommonAttentionMetadata,
        shape: Shape,
        seed: int = 0,
        route: Route = built,
    ) -> Tensor:
        heads = LatentLayerConfig(shape.num_heads, RANK, NOPE, ROPE, VALUE, shape.scale)
        layer = MLA.layer("l0", heads)
        config = EngineConfig(max_model_len=MODEL_LEN, dtype=shape.dtype, layers={"l0": heads})
        group = MLA.bind(latent_spec(shape), [layer], config, CPU)
        cache = self.pages(clean, shape, (RANK + ROPE,), seed)
        metadata = route(group.builder, common)
        return layer.impl.forward(latent_inputs(common, shape, seed), kv_cache=cache, attn_metadata=metadata)

    @override
    def expect(self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int = 0) -> Tensor:
        query, keys, values = self.expanded(clean, shape, dtype, seed)
        return attend(clean, query, keys, values, shape.scale)

    def expanded(
        self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The queries, and all keys and values ``[num_blocks, block_size, num_heads, ...]`` expanded."""
        inputs, pages = latent_inputs(clean, shape, seed), self.pages(clean, shape, (RANK + ROPE,), seed).to(dtype)
        pages.flatten(0, 1)[clean.slot_mapping] = inputs.latent.to(dtype)
        up = torch.einsum("bsl,hdl->bshd", pages[..., :RANK], inputs.kv_up.to(dtype))
        position = pages[..., None, RANK:].expand(-1, -1, shape.num_heads, -1)
        return inputs.query.to(dtype), torch.cat((up[..., :NOPE], position), -1), up[..., NOPE:].contiguous()


class SparseRig(LatentRig):
    """Sparse latent attention over positions drawn at random."""

    @override
    def run(
        self,
        common: CommonAttentionMetadata,
        clean: CommonAttentionMetadata,
        shape: Shape,
        seed: int = 0,
        route: Route = built,
    ) -> Tensor:
        heads = SparseLatentLayerConfig(shape.num_heads, RANK, NOPE, ROPE, VALUE, shape.scale, topk=TOPK)
        layer = MLA_SPARSE.layer("l0", heads)
        config = EngineConfig(max_model_len=MODEL_LEN, dtype=shape.dtype, layers={"l0": heads})
        group = MLA_SPARSE.bind(latent_spec(shape), [layer], config, CPU)
        cache = self.pages(clean, shape, (RANK + ROPE,), seed)
        new = latent_inputs(common, shape, seed)
        # Tokens of padding select nothing.
        selected = torch.full((len(new.query), TOPK), -1, dtype=torch.int32)
        chosen = self._selected(clean, seed)[: len(new.query)]
        selected[: len(chosen)] = chosen
        metadata = route(group.builder, common)
        inputs = MLASparseInputs(new.query, new.latent, new.kv_up, selected)
        return layer.impl.forward(inputs, kv_cache=cache, attn_metadata=metadata)

    @override
    def expect(self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int = 0) -> Tensor:
        query, keys, values = self.expanded(clean, shape, dtype, seed)
        out, selected, size = (
            query.new_zeros(len(query), shape.num_heads, VALUE),
            self._selected(clean, seed),
            shape.block_size,
        )
        starts = ints(clean.query_start_loc_cpu)
        for row in range(clean.num_reqs):
            for token in range(starts[row], starts[row + 1]):
                chosen = [place for place in ints(selected[token]) if place >= 0]
                at = [(int(clean.block_table_tensor[row, place // size]), place % size) for place in chosen]
                key = torch.stack([keys[block, offset] for block, offset in at])
                value = torch.stack([values[block, offset] for block, offset in at])
                weights = torch.einsum("hd,shd->hs", query[token], key).mul(shape.scale).softmax(-1)
                out[token] = torch.einsum("hs,shd->hd", weights, value)
        return out

    def _selected(self, clean: CommonAttentionMetadata, seed: int) -> Tensor:
        generator, starts = torch.Generator().manual_seed(seed), ints(clean.query_start_loc_cpu)
        selected = torch.full((clean.num_actual_tokens, TOPK), -1, dtype=torch.int32)
        for row, length in enumerate(ints(clean.seq_lens_cpu)):
            for token in range(starts[row], starts[row + 1]):
                seen = length - (starts[row + 1] - token) + 1
                chosen = torch.randperm(seen, generator=generator)[:TOPK].sort().values
                selected[token, : len(chosen)] = chosen.int()
        return selected


class IndexRig(Rig):
    """The indexer, on small integers, of which every sum is exact."""

    @override
    def run(
        self,
        common: CommonAttentionMetadata,
        clean: CommonAttentionMetadata,
        shape: Shape,
        seed: int = 0,
        route: Route = built,
    ) -> Tensor:
        heads = IndexLayerConfig(shape.num_heads, RANK, TOPK, 0.5)
        layer = INDEXER.layer("l0", heads)
        config = EngineConfig(max_model_len=MODEL_LEN, dtype=shape.dtype, layers={"l0": heads})
        spec = MLAAttentionSpec(block_size=shape.block_size, num_kv_heads=1, head_size=RANK, dtype=shape.dtype)
        group = INDEXER.bind(spec, [layer], config, CPU)
        cache = self.pages(clean, shape, (RANK,), seed).round()
        metadata = route(group.builder, common)
        inputs = self._inputs(common, shape, seed)
        return layer.impl.forward(inputs, kv_cache=cache, attn_metadata=metadata).to(shape.dtype)

    @override
    def expect(self, clean: CommonAttentionMetadata, shape: Shape, dtype: torch.dtype, seed: int = 0) -> Tensor:
        inputs, cache = self._inputs(clean, shape, seed), self.pages(clean, shape, (RANK,), seed).round()
        cache.flatten(0, 1)[clean.slot_mapping] = inputs.key
        return sparse_reference.select_topk(
            inputs.query,
            inputs.weights,
            cache,
            query_start_loc=clean.query_start_loc,
            seq_lens=clean.seq_lens,
            block_table=clean.block_table_tensor,
            scale=0.5,
            topk=TOPK,
        ).to(dtype)

    def _inputs(self, common: CommonAttentionMetadata, shape: Shape, seed: int) -> IndexerInputs:
        tokens, heads = len(common.slot_mapping), shape.num_heads
        return IndexerInputs(
            drawn_by(seed, TOKENS, heads, RANK)[:tokens].round().to(shape.dtype),
            drawn_by(seed + 7, TOKENS, RANK)[:tokens].round().to(shape.dtype),
            drawn_by(seed + 8, TOKENS, heads)[:tokens].round(),
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
    PagedRig(CHUNKED_LOCAL, chunk_spec, chunk=CHUNK),
    PagedRig(chunked_local(FLASHINFER), chunk_spec, chunk=CHUNK),
    PagedRig(chunked_local(TRITON), chunk_spec, chunk=CHUNK),
    PagedRig(chunked_local(HPC), chunk_spec, chunk=CHUNK),
    EncoderOnlyRig("encoder_only"),
    CrossRig("cross"),
    LatentRig("mla"),
    SparseRig("mla_sparse"),
    IndexRig("indexer"),
    *(QuantisedRig(mode) for mode in FORMATS),
)
