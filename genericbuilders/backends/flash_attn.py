"""Full attention over a paged cache: grouped query heads, any head size, float32, bfloat16 and float16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.builder import AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder
from genericbuilders.config import AttentionLayerConfig, EngineConfig, check_heads
from genericbuilders.kernels.layout import split_kv
from genericbuilders.kernels.select import AttentionKernels, select_kernels
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.rotary import Rotary
from genericbuilders.specs import FullAttentionSpec

__all__ = ["FLASH_ATTN", "FlashAttentionImpl", "FlashAttentionMetadata", "FlashAttentionMetadataBuilder"]


@dataclass
class FlashAttentionMetadata:
    """One batch for the attention kernel; the fields mean what they mean in vLLM.

    Attributes:
        num_actual_tokens: new tokens, padding not counted.
        max_query_len: the longest row's new tokens.
        query_start_loc: ``[num_reqs + 1]`` int32.
        max_seq_len: the longest row's sequence.
        seq_lens: ``[num_reqs]`` int32.
        block_table: ``[num_reqs, max_blocks]`` int32.
        slot_mapping: ``[num_tokens]`` int64.
        causal: whether a token sees only itself and what came before.
    """

    num_actual_tokens: int
    max_query_len: int
    query_start_loc: Tensor
    max_seq_len: int
    seq_lens: Tensor
    block_table: Tensor
    slot_mapping: Tensor
    causal: bool


class FlashAttentionMetadataBuilder(AttentionMetadataBuilder[FlashAttentionMetadata, FullAttentionSpec]):
    """Every field is there already: the batch is described once, on the host, for all groups.

    Raises:
        ValueError: the spec asks for what this back end does not compute (a window, quantised caches, values of
            another size), or a layer's heads are not those of the spec.
    """

    def __init__(
        self, kv_cache_spec: FullAttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        _require_plain(kv_cache_spec, layer_names)
        check_heads(config, layer_names, kv_cache_spec.num_kv_heads, kv_cache_spec.head_size)

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: FullAttentionSpec) -> AttentionCGSupport:
        return AttentionCGSupport.UNIFORM_BATCH

    @classmethod
    @override
    def get_kv_cache_shape(cls, num_blocks: int, kv_cache_spec: FullAttentionSpec) -> tuple[int, ...]:
        return (num_blocks, 2, kv_cache_spec.num_kv_heads, kv_cache_spec.block_size, kv_cache_spec.head_size)

    @classmethod
    @override
    def get_kv_cache_dtype(cls, kv_cache_spec: FullAttentionSpec) -> torch.dtype:
        return kv_cache_spec.dtype

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashAttentionMetadata:
        common = common_attn_metadata
        return FlashAttentionMetadata(
            common.num_actual_tokens,
            common.max_query_len,
            common.query_start_loc,
            common.max_seq_len,
            common.seq_lens,
            common.block_table_tensor,
            common.slot_mapping,
            common.causal,
        )

    @override
    def update_block_table(
        self, metadata: FlashAttentionMetadata, blk_table: Tensor, slot_mapping: Tensor
    ) -> FlashAttentionMetadata:
        return replace(metadata, block_table=blk_table, slot_mapping=slot_mapping)


def _require_plain(spec: FullAttentionSpec, layer_names: Sequence[str]) -> None:
    plain = FullAttentionSpec(
        block_size=spec.block_size,
        num_kv_heads=spec.num_kv_heads,
        head_size=spec.head_size,
        dtype=spec.dtype,
        page_size_padded=spec.page_size_padded,
        non_causal=spec.non_causal,
    )
    if spec != plain:
        raise ValueError(
            f"layers {list(layer_names)} have {spec!r}; flash_attn serves full attention over plain keys and values, "
            "without a window, a quantised cache or values of another size"
        )


class FlashAttentionImpl(AttentionImpl[FlashAttentionMetadata]):
    """Writes the new keys and values, then attends, with the best kernels that the cache's device and dtype have."""

    def __init__(self, layer: AttentionLayerConfig) -> None:
        super().__init__(layer)
        self._kernels: AttentionKernels | None = None
        self._cache: tuple[Tensor, Tensor, Tensor] | None = None

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: FlashAttentionMetadata
    ) -> Tensor:
        kernels, key_cache, value_cache = self._open(kv_cache)
        kernels.write_kv_cache(key, value, key_cache, value_cache, attn_metadata.slot_mapping)
        return self._attend(kernels, query, key_cache, value_cache, attn_metadata)

    @override
    def forward_rotary(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        rotary: Rotary,
        kv_cache: Tensor,
        attn_metadata: FlashAttentionMetadata,
    ) -> Tensor:
        kernels, key_cache, value_cache = self._open(kv_cache)
        query = kernels.rope_and_cache(
            query, key, value, rotary.cos, rotary.sin, key_cache, value_cache, attn_metadata.slot_mapping
        )
        return self._attend(kernels, query, key_cache, value_cache, attn_metadata)

    def _open(self, kv_cache: Tensor) -> tuple[AttentionKernels, Tensor, Tensor]:
        """The kernels for a cache, and its keys and values; kept, since a layer's cache stays the same."""
        if self._kernels is None or self._cache is None or self._cache[0] is not kv_cache:
            self._kernels = select_kernels(kv_cache.device, kv_cache.dtype)
            self._cache = (kv_cache, *split_kv(kv_cache, self.layer.kv_cache_layout))
        return self._kernels, self._cache[1], self._cache[2]

    def _attend(
        self,
        kernels: AttentionKernels,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        metadata: FlashAttentionMetadata,
    ) -> Tensor:
        return kernels.paged_attention(
            query,
            key_cache,
            value_cache,
            query_start_loc=metadata.query_start_loc,
            seq_lens=metadata.seq_lens,
            block_table=metadata.block_table,
            scale=self.layer.scale,
            causal=self.layer.causal and metadata.causal,
            max_query_len=metadata.max_query_len,
            max_seq_len=metadata.max_seq_len,
        )


FLASH_ATTN = BackendAdapter("flash_attn", FlashAttentionMetadataBuilder, FlashAttentionImpl)
