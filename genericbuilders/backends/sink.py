"""Attention over learned sink tokens and, behind them, a request's own: the sinks' keys and values stand in the cache.

The sinks are the same for every request. Their blocks stand in front of every row of the block table, are filled once,
and every token attends over all of them. They have no positions: their keys are used as they are, never rotated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import Adapter, AttentionLayer, BackendAdapter
from genericbuilders.backends.common_prefix import CommonPrefix, attend_split, rows_with_tokens
from genericbuilders.backends.host import check_queries
from genericbuilders.backends.paged import PagedImpl, PagedMetadata, PagedMetadataBuilder, packings
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import AttentionLayerConfig, EngineConfig, check_heads, check_reach
from genericbuilders.kernels.ints import Ints, tensor_of
from genericbuilders.kernels.select import AttentionKernels
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import SinkFullAttentionSpec, cdiv

__all__ = ["SINK", "MissingSinksError", "SinkAdapter", "SinkImpl", "SinkLayer", "SinkMetadata", "SinkMetadataBuilder"]


class MissingSinksError(RuntimeError):
    """A layer's sinks were not set, or do not stand in the cache that it runs on."""


@dataclass
class SinkMetadata(PagedMetadata):
    """One batch for the attention kernel.

    Where the sinks fill whole blocks, ``seq_lens`` and ``max_seq_len`` count them, and one pass over a row's blocks
    sees both. Where they do not, slots behind them are empty, and each part is attended over by itself.

    Attributes:
        sink_len: sink tokens.
        apart: the sinks, cut off from each row; ``None`` where ``seq_lens`` counts them, or no row has tokens.
    """

    sink_len: int
    apart: CommonPrefix | None


class SinkMetadataBuilder(PagedMetadataBuilder[SinkMetadata, SinkFullAttentionSpec]):
    """Lengths grow by the sinks; all else is there already, since a row of the block table starts with their blocks.

    Raises:
        ValueError: the spec asks for what this back end does not compute (windows, chunks, quantised caches, values of
            another size), a layer's heads are not those of the spec, or its scores depend on positions.
    """

    def __init__(
        self,
        kv_cache_spec: SinkFullAttentionSpec,
        layer_names: Sequence[str],
        config: EngineConfig,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        odd = packings(kv_cache_spec)
        if kv_cache_spec.sliding_window is not None or kv_cache_spec.attention_chunk_size is not None:
            odd.append("a window or chunks")
        if odd:
            raise ValueError(
                f"layers {list(layer_names)} have {', '.join(odd)}: {kv_cache_spec!r}; sink serves plain keys and "
                "values of all tokens behind its sinks"
            )
        check_heads(config, layer_names, kv_cache_spec.num_kv_heads, kv_cache_spec.head_size)
        check_reach(config, layer_names, None, None)
        for name in layer_names:
            layer = config.layers[name]
            if isinstance(layer, AttentionLayerConfig) and layer.alibi_slopes is not None:
                raise ValueError(f"layer {name!r} has ALiBi slopes, but sink tokens have no positions; leave them out")
        # What a CUDA graph reads stays where it is.
        self._lens = (
            None if device.type == "cpu" else torch.zeros(config.max_num_seqs, dtype=torch.int32, device=device)
        )

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: SinkFullAttentionSpec) -> AttentionCGSupport:
        return AttentionCGSupport.UNIFORM_BATCH if _whole_blocks(kv_cache_spec) else AttentionCGSupport.NEVER

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> SinkMetadata:
        """The metadata of one batch.

        Raises:
            ValueError: a row brings more tokens than its sequence has; where the sinks do not fill whole blocks, a row
                of no sequence may bring none.
        """
        common, sink_len = common_attn_metadata, self.kv_cache_spec.sink_len
        whole = _whole_blocks(self.kv_cache_spec)
        # Behind the sinks every row would look long enough.
        check_queries(common, bare=whole)
        return SinkMetadata(
            common.num_actual_tokens,
            common.max_query_len,
            common.query_start_loc,
            common.max_seq_len + sink_len if whole else common.max_seq_len,
            self._with_sinks(common) if whole else common.seq_lens,
            common.block_table_tensor,
            common.slot_mapping,
            common.causal,
            sink_len,
            None if whole else self._apart(common),
        )

    @override
    def update_block_table(self, metadata: SinkMetadata, blk_table: Tensor, slot_mapping: Tensor) -> SinkMetadata:
        """As told.

        Raises:
            ValueError: this group has other sinks, or keeps them in other blocks, than the one of ``metadata``.
        """
        spec, columns = self.kv_cache_spec, 0 if metadata.apart is None else metadata.apart.num_columns
        wanted = 0 if _whole_blocks(spec) or not metadata.num_actual_tokens else spec.num_shared_blocks
        if metadata.sink_len != spec.sink_len or columns != wanted:
            raise ValueError(
                f"the batch is described for {metadata.sink_len} sinks"
                f"{f' in {columns} blocks' if columns else ' in whole blocks'}, but this group has {spec.sink_len} in "
                f"blocks of {spec.block_size}; call build() for it"
            )
        return super().update_block_table(metadata, blk_table, slot_mapping)

    def _with_sinks(self, common: CommonAttentionMetadata) -> Tensor:
        """``[num_reqs]``: each row's length with the sinks; rows without a sequence stay empty."""
        if self.device.type == "cpu":
            own: Ints = common.seq_lens.numpy()[: common.num_reqs]
            grown = own + own.dtype.type(self.kv_cache_spec.sink_len)
            if np.count_nonzero(own) < len(own):
                grown[own == 0] = 0
            return tensor_of(grown)
        lens = common.seq_lens[: common.num_reqs]
        kept = None if self._lens is None or len(lens) > len(self._lens) else self._lens[: len(lens)]
        return torch.add(lens, lens.clamp(max=1), alpha=self.kv_cache_spec.sink_len, out=kept)

    def _apart(self, common: CommonAttentionMetadata) -> CommonPrefix | None:
        active = rows_with_tokens(common)
        if not len(active):
            return None
        lens, sink_len = common.seq_lens, self.kv_cache_spec.sink_len
        return CommonPrefix(
            sink_len,
            self.kv_cache_spec.num_shared_blocks,
            int(active[0]),
            common.query_start_loc.new_tensor([0, common.num_actual_tokens]),
            lens.new_full((1,), sink_len),
            lens[: common.num_reqs],
            common.max_seq_len,
        )


def _whole_blocks(spec: SinkFullAttentionSpec) -> bool:
    return spec.sink_len % spec.block_size == 0


class SinkImpl(PagedImpl[SinkMetadata]):
    """Attends over the sinks and a row's own tokens, with the best kernels that the cache's device and dtype have.

    Attributes:
        name: the layer's, in messages.
    """

    def __init__(self, layer: AttentionLayerConfig) -> None:
        super().__init__(layer)
        self.name: str = "?"
        self._sinks: tuple[Tensor, Tensor] | None = None
        self._filled: Tensor | None = None

    def set_sinks(self, key: Tensor, value: Tensor | None) -> None:
        """See `SinkLayer.set_sinks`."""
        shape = (self.layer.num_kv_heads, self.layer.head_size)
        for what, tensor in (("keys", key), ("values", key if value is None else value)):
            if tensor.dim() != 3 or tensor.shape[1:] != shape or not len(tensor):
                raise ValueError(
                    f"layer {self.name!r}: the sinks' {what} are {tuple(tensor.shape)}; they must be [sink_len, "
                    f"{shape[0]} key-value heads, {shape[1]} elements], of at least one sink"
                )
        if value is not None and len(value) != len(key):
            raise ValueError(f"layer {self.name!r}: there are {len(key)} keys of sinks, but {len(value)} values")
        self._sinks = (key, torch.zeros_like(key) if value is None else value)
        self._filled = None

    def fill(self, kv_cache: Tensor, block_ids: Sequence[int]) -> None:
        """See `SinkLayer.fill_shared_blocks`."""
        if self._sinks is None:
            raise MissingSinksError(
                f"layer {self.name!r} has no sinks to put into its cache; call SinkLayer.set_sinks before the engine "
                "is made"
            )
        kernels, key_cache, value_cache = super().open(kv_cache)
        size, count = key_cache.shape[1], len(self._sinks[0])
        if cdiv(count, size) != len(block_ids):
            raise ValueError(
                f"layer {self.name!r} has {count} sinks, which take {cdiv(count, size)} blocks of {size} tokens, but "
                f"its cache keeps {len(block_ids)} for them; sink_len of its spec must be {count}"
            )
        blocks = torch.tensor(block_ids, dtype=torch.int64, device=kv_cache.device)
        slots = (blocks[:, None] * size + torch.arange(size, device=kv_cache.device)).flatten()[:count]
        key, value = (part.detach().to(kv_cache.device, kv_cache.dtype) for part in self._sinks)
        kernels.write_kv_cache(key, value, key_cache, value_cache, slots)
        self._filled = kv_cache

    @classmethod
    @override
    def can_read(cls) -> bool:
        """No: the sinks of another layer's cache are that layer's."""
        return False

    @override
    def open(self, kv_cache: Tensor) -> tuple[AttentionKernels, Tensor, Tensor]:
        if self._filled is not kv_cache:
            raise MissingSinksError(
                f"layer {self.name!r} runs on a cache in which its sinks do not stand; set them before the engine is "
                "made, or call fill_shared_blocks() of its group"
            )
        return super().open(kv_cache)

    @override
    def attend(
        self,
        kernels: AttentionKernels,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        metadata: SinkMetadata,
    ) -> Tensor:
        if self._sinks is None or len(self._sinks[0]) != metadata.sink_len:
            raise ValueError(
                f"layer {self.name!r} has {0 if self._sinks is None else len(self._sinks[0])} sinks, but its cache is "
                f"made for {metadata.sink_len}"
            )
        if metadata.apart is None:
            return super().attend(kernels, query, key_cache, value_cache, metadata)
        return attend_split(
            kernels,
            query,
            key_cache,
            value_cache,
            metadata.apart,
            metadata,
            scale=self.layer.scale,
            causal=self.layer.causal,
            scoring=self.scoring,
        )


class SinkLayer(AttentionLayer[SinkMetadata]):
    """An attention layer with sinks of its own."""

    def __init__(self, name: str, config: AttentionLayerConfig, adapter: Adapter, impl: SinkImpl) -> None:
        super().__init__(name, config, adapter, impl)
        impl.name = name
        self._sink_impl = impl

    def set_sinks(self, key: Tensor, value: Tensor | None = None) -> None:
        """Give the layer its learned sinks, before its cache is filled.

        Args:
            key: ``[sink_len, num_kv_heads, head_size]``, as they are attended over: normed if the layer norms keys,
                and never rotated.
            value: likewise; ``None`` for zeros: such sinks take a share of the softmax and give nothing.

        Raises:
            ValueError: another shape, or not as many values as keys.
        """
        self._sink_impl.set_sinks(key, value)

    @override
    def fill_shared_blocks(self, kv_cache: Tensor, block_ids: Sequence[int]) -> None:
        """Write the sinks into their blocks; once for each cache.

        Raises:
            MissingSinksError: they were not set.
            ValueError: they do not take as many blocks.
        """
        self._sink_impl.fill(kv_cache, block_ids)


@dataclass(frozen=True, eq=False)
class SinkAdapter(BackendAdapter[SinkMetadata, SinkFullAttentionSpec]):
    """The back end; its layers take sinks."""

    @override
    def layer(self, name: str, config: AttentionLayerConfig) -> SinkLayer:
        return SinkLayer(name, config, self, SinkImpl(config))


SINK = SinkAdapter("sink", SinkMetadataBuilder, SinkImpl)
