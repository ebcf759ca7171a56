"""Attention within chunks (Llama 4), by any back end of full attention: each chunk becomes a row of its own.

A token sees the tokens of its own chunk up to itself, and chunks start at multiples of their size. So a request's new
tokens are cut where chunks end, and each piece attends over the blocks of its chunk alone: *virtual* rows, of which the
wrapped back end need not know that they are parts of one request.
"""

from __future__ import annotations

import types
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, TypeGuard

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.adapter import Adapter, BackendAdapter
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.host import check_table, send
from genericbuilders.builder import AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder
from genericbuilders.config import AttentionLayerConfig, EngineConfig, check_reach
from genericbuilders.generics import generic_arguments
from genericbuilders.kernels.ints import Ints, largest, tensor_of
from genericbuilders.keys import Key
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import ChunkedLocalAttentionSpec, FullAttentionSpec, KVCacheSpec, cdiv, promote_to_full

__all__ = [
    "CHUNKED_LOCAL",
    "ChunkedLocalBuilder",
    "ChunkedSpec",
    "FullAttentionAdapter",
    "FullAttentionBuilder",
    "VirtualRows",
    "chunked_local",
    "cut_into_chunks",
]

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)

ChunkedSpec: TypeAlias = ChunkedLocalAttentionSpec | FullAttentionSpec
"""A cache of the current chunk, or one that keeps all blocks of such a layer (`promote_to_full`)."""


class FullAttentionBuilder(Protocol[M_co]):
    """What builders of full attention have, whatever else they take."""

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> M_co:
        """See `AttentionMetadataBuilder.build`."""
        ...


class FullAttentionAdapter(Protocol[M]):
    """A back end that takes a `FullAttentionSpec`, alone or among others."""

    @property
    def name(self) -> str:
        """What configurations call it."""
        ...

    @property
    def requires(self) -> tuple[str, ...]:
        """Modules that must be importable for it to run."""
        ...

    @property
    def needs(self) -> tuple[Key, ...]:
        """Inputs, beyond the batch, that its builder reads."""
        ...

    @property
    def reads(self) -> Adapter | None:
        """The back end whose caches it reads, if it has none itself."""
        ...

    @property
    def metadata_type(self) -> object:
        """The class of its metadata."""
        ...

    @property
    def spec_types(self) -> tuple[type[KVCacheSpec], ...]:
        """The classes of specs that it takes."""
        ...

    @property
    def impl(self) -> type[AttentionImpl[M]]:
        """Its implementation."""
        ...

    def make_builder(
        self, spec: FullAttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> FullAttentionBuilder[M]:
        """See `TypedAdapter.make_builder`."""
        ...

    def kv_cache_shape(self, num_blocks: int, spec: FullAttentionSpec) -> tuple[int, ...]:
        """The shape of a layer's cache."""
        ...

    def kv_cache_dtype(self, spec: FullAttentionSpec) -> torch.dtype:
        """The element type of that cache."""
        ...


@dataclass(frozen=True, eq=False)
class VirtualRows:
    """A batch cut into chunks. All arrays are on the host.

    Attributes:
        row: ``[num_virtual]`` int64: the request that each is a part of.
        seq_lens: ``[num_virtual]``: the tokens of its chunk up to its last one.
        num_computed_tokens: ``[num_virtual]``: those of them that were computed before.
        first_position: ``[num_virtual]``: where its chunk starts in the sequence.
    """

    row: Ints
    seq_lens: Ints
    num_computed_tokens: Ints
    first_position: Ints


def cut_into_chunks(query_lens: Ints, seq_lens: Ints, chunk_size: int) -> VirtualRows:
    """Cut rows at multiples of ``chunk_size`` in their sequences. Rows without new tokens have no part.

    Args:
        query_lens: ``[num_reqs]``: new tokens.
        seq_lens: ``[num_reqs]``: tokens before and in this batch; not below the new ones.
        chunk_size: tokens.

    Raises:
        ValueError: the chunk is not positive, or a row has more new tokens than its sequence; it is named.
    """
    if chunk_size < 1:
        raise ValueError(f"attention_chunk_size is {chunk_size}; it must be at least 1 token")
    count = len(query_lens)
    computed = seq_lens - query_lens
    if count and computed.min() < 0:
        wrong = int((computed < 0).argmax())
        raise ValueError(f"row {wrong} has {query_lens[wrong]} new tokens in a sequence of {seq_lens[wrong]}")
    first = computed // chunk_size
    counts = (seq_lens - 1) // chunk_size - first
    counts += 1
    if np.count_nonzero(query_lens) < count:
        counts[query_lens == 0] = 0
    row = np.arange(count).repeat(counts)
    # Where the chunk of each row's first part would be if the parts were numbered from there on.
    first -= np.add.accumulate(counts, dtype=first.dtype) - counts
    start = first.take(row)
    start += np.arange(len(row), dtype=start.dtype)
    start *= chunk_size
    length = seq_lens.take(row) - start
    np.minimum(length, chunk_size, out=length)
    before = computed.take(row) - start
    np.maximum(before, 0, out=before)
    return VirtualRows(row, length, before, start)


class ChunkedLocalBuilder(AttentionMetadataBuilder[M, ChunkedSpec]):
    """Has another back end build the virtual rows; made for each back end by `chunked_local`.

    The number of virtual rows follows the lengths, so that no graph can hold them, whatever the other back end allows.

    Raises:
        ValueError: the spec has no chunk, blocks do not divide it, or a layer has another.
    """

    def __init__(
        self, kv_cache_spec: ChunkedSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        chunk_size = kv_cache_spec.attention_chunk_size
        if chunk_size is None:
            raise ValueError(f"layers {list(layer_names)} have no attention_chunk_size in their {kv_cache_spec!r}")
        check_reach(config, layer_names, None, chunk_size)
        if chunk_size % kv_cache_spec.block_size and config.max_model_len > chunk_size:
            raise ValueError(
                f"layers {list(layer_names)} attend within chunks of {chunk_size} tokens, which blocks of "
                f"{kv_cache_spec.block_size} tokens do not divide: a chunk must start where a block does; choose a "
                f"block size that divides {chunk_size}"
            )
        self.chunk_size: int = chunk_size
        self._inner = self.origin().make_builder(
            _unchunked(kv_cache_spec), layer_names, _without_chunks(config, layer_names), device
        )

    @classmethod
    @abstractmethod
    def origin(cls) -> FullAttentionAdapter[M]:
        """The back end that builds the virtual rows."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: ChunkedSpec) -> AttentionCGSupport:
        return AttentionCGSupport.NEVER

    @classmethod
    @override
    def get_kv_cache_shape(cls, num_blocks: int, kv_cache_spec: ChunkedSpec) -> tuple[int, ...]:
        return cls.origin().kv_cache_shape(num_blocks, _unchunked(kv_cache_spec))

    @classmethod
    @override
    def get_kv_cache_dtype(cls, kv_cache_spec: ChunkedSpec) -> torch.dtype:
        return cls.origin().kv_cache_dtype(_unchunked(kv_cache_spec))

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> M:
        # A prefix that all requests share is none of their later chunks'.
        return self._inner.build(0, self.virtual_batch(common_attn_metadata), fast_build)

    def virtual_batch(self, common: CommonAttentionMetadata) -> CommonAttentionMetadata:
        """The batch of virtual rows; ``common`` itself where no sequence is longer than a chunk.

        Raises:
            ValueError: the block table is too small for the batch, or a row has more new tokens than its sequence.
        """
        if common.max_seq_len <= self.chunk_size:
            return common
        check_table(common, self.kv_cache_spec.block_size)
        lengths: Ints = common.seq_lens_cpu.numpy()
        if common.max_query_len == 1 and common.num_actual_tokens == common.num_reqs:
            # Each row is one token of one chunk, so that only its sequence changes.
            if np.count_nonzero(lengths < 1):
                row = int(lengths.argmin())
                raise ValueError(f"row {row} has 1 new token in a sequence of {lengths[row]}")
            first = (lengths - 1) // self.chunk_size * self.chunk_size
            seq_lens = lengths - first
            virtual = VirtualRows(np.arange(len(lengths)), seq_lens, seq_lens - 1, first)
            starts, starts_cpu, max_query_len = common.query_start_loc, common.query_start_loc_cpu, 1
        else:
            given: Ints = common.query_start_loc_cpu.numpy()
            virtual = cut_into_chunks(given[1:] - given[:-1], lengths, self.chunk_size)
            query_lens = virtual.seq_lens - virtual.num_computed_tokens
            ends = np.zeros(len(virtual.row) + 1, dtype=np.int32)
            np.add.accumulate(query_lens, out=ends[1:])
            starts_cpu = tensor_of(ends)
            starts, max_query_len = send(starts_cpu, self.device), largest(query_lens)
        seq_lens_cpu, max_seq_len = tensor_of(virtual.seq_lens), largest(virtual.seq_lens)
        return replace(
            common,
            query_start_loc=starts,
            query_start_loc_cpu=starts_cpu,
            seq_lens=send(seq_lens_cpu, self.device),
            seq_lens_cpu=seq_lens_cpu,
            num_computed_tokens_cpu=tensor_of(virtual.num_computed_tokens),
            num_reqs=len(virtual.row),
            max_query_len=max_query_len,
            max_seq_len=max_seq_len,
            block_table_tensor=self._chunk_blocks(common.block_table_tensor, virtual, max_seq_len),
        )

    def _chunk_blocks(self, block_table: Tensor, virtual: VirtualRows, max_seq_len: int) -> Tensor:
        """``[num_virtual, blocks of the longest row]`` int32: each row's part of its request's table.

        A row is read as a run of the table's memory: behind a shorter row's own columns stand whatever comes next,
        which nobody reads.
        """
        block_size = self.kv_cache_spec.block_size
        width = cdiv(max_seq_len, block_size)
        if not len(virtual.row) or not width:
            return block_table[:0]
        stride, columns = block_table.stride(0), block_table.shape[1]
        runs = (len(block_table) - 1) * stride + columns - width + 1
        first = virtual.row * stride
        first += virtual.first_position // block_size
        if block_table.stride(1) == 1 and largest(first) < runs:
            return block_table.as_strided((runs, width), (1, 1)).index_select(0, send(tensor_of(first), self.device))
        at = virtual.first_position[:, None] // block_size + np.arange(width)
        places = send(torch.as_tensor(np.minimum(at, columns - 1)), self.device)
        return block_table[send(tensor_of(virtual.row), self.device)].gather(1, places)


def chunked_local(adapter: FullAttentionAdapter[M], name: str | None = None) -> BackendAdapter[M, ChunkedSpec]:
    """A back end that attends within chunks, and has ``adapter`` build and compute them: its metadata is ``adapter``'s.

    Args:
        adapter: a back end of full attention.
        name: what configurations call it; ``None`` for ``chunked_local`` and the other's name.

    Raises:
        TypeError: ``adapter`` takes no `FullAttentionSpec` or has no cache, or the metadata of ``adapter`` is no class.
    """
    if not any(issubclass(FullAttentionSpec, taken) for taken in adapter.spec_types):
        taken = " or ".join(each.__name__ for each in adapter.spec_types)
        raise TypeError(f"adapter {adapter.name!r} takes {taken}, no FullAttentionSpec; wrap one that does")
    if adapter.reads is not None:
        raise TypeError(
            f"adapter {adapter.name!r} reads caches of {adapter.reads.name!r}; chunk that one, then wrap it"
        )
    made = adapter.metadata_type
    if not isinstance(made, type):
        raise TypeError(f"adapter {adapter.name!r} makes {made!r}, which is no class; name one in its builder's base")
    return BackendAdapter(
        name or f"chunked_local_{adapter.name}",
        _builder_of(adapter),
        adapter.impl,
        requires=adapter.requires,
        needs=adapter.needs,
    )


def _builder_of(adapter: FullAttentionAdapter[M]) -> type[ChunkedLocalBuilder[M]]:
    def body(namespace: dict[str, object]) -> None:
        def origin(cls: type[object]) -> FullAttentionAdapter[M]:
            return adapter

        namespace["__module__"] = __name__
        namespace["__doc__"] = f"Attention within chunks, built by {adapter.name}."
        namespace["origin"] = classmethod(origin)

    # At run time an adapter reads M from the base's argument.
    base = types.GenericAlias(ChunkedLocalBuilder, (adapter.metadata_type,))
    made = types.new_class("ChunkedLocalBuilder", (base,), exec_body=body)
    if not _builds_for(made, adapter):
        raise TypeError(f"{made!r} is no ChunkedLocalBuilder")
    return made


def _builds_for(cls: type[object], adapter: FullAttentionAdapter[M]) -> TypeGuard[type[ChunkedLocalBuilder[M]]]:
    return generic_arguments(cls, ChunkedLocalBuilder) == (adapter.metadata_type,)


def _unchunked(spec: ChunkedSpec) -> FullAttentionSpec:
    """The same pages for a back end that attends over all that it is given."""
    return replace(promote_to_full(spec), attention_chunk_size=None)


def _without_chunks(config: EngineConfig, layer_names: Sequence[str]) -> EngineConfig:
    """The settings for the wrapped back end: of its layers' rows, each is one chunk."""
    chunked = set(layer_names)
    layers = {
        name: replace(layer, attention_chunk_size=None)
        if name in chunked and isinstance(layer, AttentionLayerConfig)
        else layer
        for name, layer in config.layers.items()
    }
    return replace(config, layers=layers)


CHUNKED_LOCAL = chunked_local(FLASH_ATTN, "chunked_local")
