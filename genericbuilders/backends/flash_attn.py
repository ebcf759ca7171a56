"""Attention over a paged cache, of all tokens or a window: grouped heads, any head size, float32, bfloat16, float16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.backends.common_prefix import CommonPrefix, attend_split, split_prefix
from genericbuilders.backends.paged import PagedImpl, PagedMetadata, PagedMetadataBuilder, check_layers
from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import AttentionLayerConfig, CommonPrefixRule, EngineConfig, LayerConfig
from genericbuilders.kernels.select import AttentionKernels
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import FullAttentionSpec, SlidingWindowSpec

__all__ = [
    "CPU_PREFIX_RULE",
    "FLASH_ATTN",
    "FlashAttentionImpl",
    "FlashAttentionMetadata",
    "FlashAttentionMetadataBuilder",
    "FlashAttentionSpec",
]

FlashAttentionSpec: TypeAlias = FullAttentionSpec | SlidingWindowSpec
"""A cache of all tokens, or of those in a window."""

CPU_PREFIX_RULE = CommonPrefixRule(min_rows=16, min_tokens=1024)
"""From here on splitting paid on a CPU, whatever the heads: tests/bench/common_prefix.py."""


@dataclass
class FlashAttentionMetadata(PagedMetadata):
    """One batch for the attention kernel.

    Attributes:
        prefix: blocks at the front of every sequence that all new tokens attend over at once; ``None`` for none.
    """

    prefix: CommonPrefix | None = None

    @property
    def common_prefix_len(self) -> int:
        """Tokens that all new tokens attend over at once; 0 for none."""
        return 0 if self.prefix is None else self.prefix.num_tokens


class FlashAttentionMetadataBuilder(PagedMetadataBuilder[FlashAttentionMetadata, FlashAttentionSpec]):
    """Every field is there already: the batch is described once, on the host, for all groups.

    Raises:
        ValueError: the spec asks for what this back end does not compute (chunks, quantised caches, values of another
            size), or a layer's heads or window are not those of the spec.
    """

    def __init__(
        self, kv_cache_spec: FlashAttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        check_layers("flash_attn", kv_cache_spec, layer_names, config)
        # A prefix that all requests share is attended over once, where no score depends on positions.
        self._may_split = not any(_by_position(config.layers[name]) for name in layer_names)

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: FlashAttentionSpec) -> AttentionCGSupport:
        return AttentionCGSupport.UNIFORM_BATCH

    @override
    def common_prefix_rule(self) -> CommonPrefixRule | None:
        if not self._may_split:
            return None
        chosen = self.config.common_prefix_rule
        return CPU_PREFIX_RULE if chosen is None and self.device.type == "cpu" else chosen

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashAttentionMetadata:
        common = common_attn_metadata
        prefix = None
        if common_prefix_len and self._may_split:
            prefix = split_prefix(common, common_prefix_len, self.kv_cache_spec.block_size)
        return FlashAttentionMetadata(
            common.num_actual_tokens,
            common.max_query_len,
            common.query_start_loc,
            common.max_seq_len,
            common.seq_lens,
            common.block_table_tensor,
            common.slot_mapping,
            common.causal,
            prefix,
        )

    @override
    def update_block_table(
        self, metadata: FlashAttentionMetadata, blk_table: Tensor, slot_mapping: Tensor
    ) -> FlashAttentionMetadata:
        """As told; nothing is split off, since which blocks the other group's rows share nobody has said."""
        return replace(metadata, block_table=blk_table, slot_mapping=slot_mapping, prefix=None)


def _by_position(layer: LayerConfig) -> bool:
    return isinstance(layer, AttentionLayerConfig) and (
        layer.sliding_window is not None or layer.alibi_slopes is not None or layer.sinks is not None
    )


class FlashAttentionImpl(PagedImpl[FlashAttentionMetadata]):
    """Writes the new keys and values, then attends, with the best kernels that the cache's device and dtype have."""

    @override
    def attend(
        self,
        kernels: AttentionKernels,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        metadata: FlashAttentionMetadata,
    ) -> Tensor:
        if metadata.prefix is None:
            return super().attend(kernels, query, key_cache, value_cache, metadata)
        return attend_split(
            kernels,
            query,
            key_cache,
            value_cache,
            metadata.prefix,
            metadata,
            scale=self.layer.scale,
            causal=self.layer.causal,
            scoring=self.scoring,
        )


FLASH_ATTN = BackendAdapter("flash_attn", FlashAttentionMetadataBuilder, FlashAttentionImpl)
