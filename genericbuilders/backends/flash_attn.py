"""Attention over a paged cache, of all tokens or a window: grouped heads, any head size, float32, bfloat16, float16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.builder import AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder
from genericbuilders.config import AttentionLayerConfig, EngineConfig, LayerConfig, check_heads, check_reach
from genericbuilders.kernels.layout import split_kv
from genericbuilders.kernels.merge import merge_attention_states
from genericbuilders.kernels.scoring import PLAIN, Scoring
from genericbuilders.kernels.select import AttentionKernels, select_kernels
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.rotary import Rotary
from genericbuilders.specs import FullAttentionSpec, KVQuantMode, SlidingWindowSpec

__all__ = [
    "FLASH_ATTN",
    "FlashAttentionImpl",
    "FlashAttentionMetadata",
    "FlashAttentionMetadataBuilder",
    "FlashAttentionSpec",
    "layer_scoring",
]

FlashAttentionSpec: TypeAlias = FullAttentionSpec | SlidingWindowSpec
"""A cache of all tokens, or of those in a window."""


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
        common_prefix_len: tokens at the front of every sequence that stand in the same blocks, and that all new tokens
            attend over at once; 0 for none.
    """

    num_actual_tokens: int
    max_query_len: int
    query_start_loc: Tensor
    max_seq_len: int
    seq_lens: Tensor
    block_table: Tensor
    slot_mapping: Tensor
    causal: bool
    common_prefix_len: int = 0


class FlashAttentionMetadataBuilder(AttentionMetadataBuilder[FlashAttentionMetadata, FlashAttentionSpec]):
    """Every field is there already: the batch is described once, on the host, for all groups.

    Raises:
        ValueError: the spec asks for what this back end does not compute (chunks, quantised caches, values of another
            size), or a layer's heads or window are not those of the spec.
    """

    def __init__(
        self, kv_cache_spec: FlashAttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        _require_plain(kv_cache_spec, layer_names)
        check_heads(config, layer_names, kv_cache_spec.num_kv_heads, kv_cache_spec.head_size)
        check_reach(config, layer_names, kv_cache_spec.sliding_window, None)
        # A prefix that all requests share is attended over once, where no score depends on positions.
        self._may_cascade = not any(_by_position(config.layers[name]) for name in layer_names)

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: FlashAttentionSpec) -> AttentionCGSupport:
        return AttentionCGSupport.UNIFORM_BATCH

    @classmethod
    @override
    def get_kv_cache_shape(cls, num_blocks: int, kv_cache_spec: FlashAttentionSpec) -> tuple[int, ...]:
        return (num_blocks, 2, kv_cache_spec.num_kv_heads, kv_cache_spec.block_size, kv_cache_spec.head_size)

    @classmethod
    @override
    def get_kv_cache_dtype(cls, kv_cache_spec: FlashAttentionSpec) -> torch.dtype:
        return kv_cache_spec.dtype

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashAttentionMetadata:
        common = common_attn_metadata
        shared = common_prefix_len if self._may_cascade and common.num_reqs > 1 else 0
        return FlashAttentionMetadata(
            common.num_actual_tokens,
            common.max_query_len,
            common.query_start_loc,
            common.max_seq_len,
            common.seq_lens,
            common.block_table_tensor,
            common.slot_mapping,
            common.causal,
            shared // self.kv_cache_spec.block_size * self.kv_cache_spec.block_size,
        )

    @override
    def update_block_table(
        self, metadata: FlashAttentionMetadata, blk_table: Tensor, slot_mapping: Tensor
    ) -> FlashAttentionMetadata:
        return replace(metadata, block_table=blk_table, slot_mapping=slot_mapping)


def _require_plain(spec: FlashAttentionSpec, layer_names: Sequence[str]) -> None:
    odd = [
        told
        for found, told in (
            (spec.kv_quant_mode is not KVQuantMode.NONE or spec.state_content_bytes is not None, "a quantised cache"),
            (spec.head_size_v != spec.head_size, f"values of {spec.head_size_v} elements"),
            (spec.num_head_slots is not None or spec.tokens_per_state != 1, "packed heads or tokens"),
            (isinstance(spec, FullAttentionSpec) and spec.attention_chunk_size is not None, "chunks"),
            (type(spec) not in (FullAttentionSpec, SlidingWindowSpec), f"a {type(spec).__name__}"),
        )
        if found
    ]
    if odd:
        raise ValueError(
            f"layers {list(layer_names)} have {', '.join(odd)}: {spec!r}; flash_attn serves plain keys and values, of "
            "all tokens or a window"
        )


def _by_position(layer: LayerConfig) -> bool:
    return isinstance(layer, AttentionLayerConfig) and (
        layer.sliding_window is not None or layer.alibi_slopes is not None or layer.sinks is not None
    )


def layer_scoring(layer: AttentionLayerConfig, device: torch.device) -> Scoring:
    """What the layer's settings do to its scores, with tensors on ``device``."""
    slopes = None
    if layer.alibi_slopes is not None:
        slopes = torch.tensor(layer.alibi_slopes, dtype=torch.float32, device=device)
    sinks = None if layer.sinks is None else layer.sinks.to(device, torch.float32)
    return Scoring(layer.logits_soft_cap, slopes, layer.sliding_window, sinks)


class FlashAttentionImpl(AttentionImpl[FlashAttentionMetadata]):
    """Writes the new keys and values, then attends, with the best kernels that the cache's device and dtype have."""

    def __init__(self, layer: AttentionLayerConfig) -> None:
        super().__init__(layer)
        self._kernels: AttentionKernels | None = None
        self._cache: tuple[Tensor, Tensor, Tensor] | None = None
        self._scoring: Scoring = PLAIN

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
            self._scoring = layer_scoring(self.layer, kv_cache.device)
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
        if metadata.common_prefix_len:
            return self._cascade(kernels, query, key_cache, value_cache, metadata)
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
            scoring=self._scoring,
        )

    def _cascade(
        self,
        kernels: AttentionKernels,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        metadata: FlashAttentionMetadata,
    ) -> Tensor:
        """All new tokens over the shared prefix as one request, then each over the rest of its own; merged."""
        shared, tokens = metadata.common_prefix_len, metadata.num_actual_tokens
        blocks = shared // key_cache.shape[1]
        lse = query.new_empty(2, len(query), query.shape[1], dtype=torch.float32)
        whole = metadata.query_start_loc.new_tensor([0, tokens])
        prefix = kernels.paged_attention(
            query,
            key_cache,
            value_cache,
            query_start_loc=whole,
            seq_lens=metadata.seq_lens.new_full((1,), shared),
            block_table=metadata.block_table[:1],
            scale=self.layer.scale,
            causal=False,
            max_query_len=tokens,
            max_seq_len=shared,
            scoring=self._scoring,
            lse=lse[0],
        )
        rest = kernels.paged_attention(
            query,
            key_cache,
            value_cache,
            query_start_loc=metadata.query_start_loc,
            seq_lens=(metadata.seq_lens - shared).clamp(min=0),
            block_table=metadata.block_table[:, blocks:],
            scale=self.layer.scale,
            causal=self.layer.causal and metadata.causal,
            max_query_len=metadata.max_query_len,
            max_seq_len=metadata.max_seq_len - shared,
            scoring=self._scoring,
            lse=lse[1],
        )
        return merge_attention_states([prefix, rest], [lse[0], lse[1]])


FLASH_ATTN = BackendAdapter("flash_attn", FlashAttentionMetadataBuilder, FlashAttentionImpl)
