"""What all back ends over quantised caches share: a slot is one token's key and value in one head, as bytes.

New keys and values are quantised as they are stored, and every token attends over what is stored, its own key and value
included. So it sees the same whether its request is prefilled whole, in chunks or again after a preemption, and whoever
stored the beginning that it shares.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.backends.flash_attn import FlashAttentionMetadata
from genericbuilders.backends.paged import PagedMetadataBuilder, check_counts
from genericbuilders.builder import AttentionCGSupport, AttentionImpl
from genericbuilders.config import AttentionLayerConfig, EngineConfig, KVCacheLayout, check_heads
from genericbuilders.kernels.quant.formats import format_of_width, slot_format
from genericbuilders.kernels.quant.select import QuantisedKernels, select_quantised_kernels
from genericbuilders.kernels.quant.slots import SlotCodec
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import FullAttentionSpec, KVQuantMode

__all__ = ["QuantisedBuilder", "QuantisedImpl", "QuantisedModes", "check_quantisable", "quantised_spec"]


def quantised_spec(spec: FullAttentionSpec, mode: KVQuantMode) -> FullAttentionSpec:
    """The spec of the same layer with its cache quantised: pages hold bytes, as many as the mode's slots have.

    Args:
        spec: of a plain cache.
        mode: how to quantise.

    Raises:
        ValueError: the spec is quantised or packed already, its values have another size than its keys, or the mode is
            not served or lacks the head size; the numbers are named.
    """
    if spec.kv_quant_mode is not KVQuantMode.NONE or spec.state_content_bytes is not None:
        raise ValueError(
            f"{spec!r} is quantised or packed already (mode {spec.kv_quant_mode.name}); take the spec of a plain cache"
        )
    if spec.page_size_padded is not None:
        raise ValueError(f"{spec!r} has pages padded for plain keys and values; take the spec without padding")
    if spec.head_size_v != spec.head_size:
        raise ValueError(
            f"{spec!r} has keys of {spec.head_size} elements and values of {spec.head_size_v}; mode {mode.name} takes "
            "heads of one size"
        )
    slot_bytes = slot_format(mode, spec.head_size).slot_bytes
    return replace(spec, dtype=torch.uint8, kv_quant_mode=mode, state_content_bytes=slot_bytes)


class QuantisedModes(ABC):
    """Which modes a back end over quantised caches serves: its builder and its implementation are told once."""

    @classmethod
    @abstractmethod
    def modes(cls) -> Collection[KVQuantMode]:
        """The modes; their slots differ in size, so that a cache tells which one it is in."""


class QuantisedBuilder(QuantisedModes, PagedMetadataBuilder[FlashAttentionMetadata, FullAttentionSpec]):
    """A batch is described as for plain caches, with the same metadata.

    Raises:
        ValueError: the spec's mode or the bytes of its slots are not the back end's, the mode lacks the head size, the
            layers' heads are not those of the spec, or scores would need more than a scale and the causal mask.
    """

    def __init__(
        self, kv_cache_spec: FullAttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        _check_spec(kv_cache_spec, self.modes(), layer_names)
        check_heads(config, layer_names, kv_cache_spec.num_kv_heads, kv_cache_spec.head_size)
        for name in layer_names:
            layer = config.layers.get(name)
            if isinstance(layer, AttentionLayerConfig):
                check_quantisable(name, layer)

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: FullAttentionSpec) -> AttentionCGSupport:
        return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    @classmethod
    @override
    def get_kv_cache_shape(cls, num_blocks: int, kv_cache_spec: FullAttentionSpec) -> tuple[int, ...]:
        spec = kv_cache_spec
        return (num_blocks, spec.num_kv_heads, spec.block_size, spec.state_content_size_bytes)

    @classmethod
    @override
    def get_kv_cache_dtype(cls, kv_cache_spec: FullAttentionSpec) -> torch.dtype:
        return torch.uint8

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


def _check_spec(spec: FullAttentionSpec, modes: Collection[KVQuantMode], layer_names: Sequence[str]) -> None:
    if spec.kv_quant_mode not in modes:
        served = ", ".join(f"{mode.name} ({mode.value})" for mode in modes)
        raise ValueError(
            f"layers {list(layer_names)} have a cache in mode {spec.kv_quant_mode.name} ({spec.kv_quant_mode.value}); "
            f"this back end serves {served}"
        )
    slot = slot_format(spec.kv_quant_mode, spec.head_size)
    if spec.state_content_size_bytes != slot.slot_bytes:
        raise ValueError(
            f"layers {list(layer_names)} have slots of {spec.state_content_size_bytes} bytes in their spec, but mode "
            f"{slot.mode.name} stores a token of head size {slot.head_size} in {slot.slot_bytes}; make the spec with "
            "quantised_spec"
        )
    plain = FullAttentionSpec(
        block_size=spec.block_size,
        num_kv_heads=spec.num_kv_heads,
        head_size=spec.head_size,
        dtype=spec.dtype,
        kv_quant_mode=spec.kv_quant_mode,
        page_size_padded=spec.page_size_padded,
        state_content_bytes=spec.state_content_bytes,
        non_causal=spec.non_causal,
    )
    if spec != plain:
        raise ValueError(
            f"layers {list(layer_names)} have {spec!r}; quantised caches are for full attention, without a window, "
            "a chunk, sinks, packed heads, compressed tokens or values of another size"
        )


def check_quantisable(name: str, layer: AttentionLayerConfig) -> None:
    """Check that a layer's attention is one that quantised caches serve.

    Raises:
        ValueError: its cache has another layout, or its scores need more than a scale and the causal mask; what it has
            is named.
    """
    if layer.kv_cache_layout is not KVCacheLayout.BLOCK_FIRST:
        raise ValueError(
            f"layer {name!r} has the layout {layer.kv_cache_layout.value}, but a slot of a quantised cache holds key "
            f"and value together; use {KVCacheLayout.BLOCK_FIRST.value}"
        )
    more = {
        "sliding_window": layer.sliding_window,
        "attention_chunk_size": layer.attention_chunk_size,
        "logits_soft_cap": layer.logits_soft_cap,
        "alibi_slopes": layer.alibi_slopes,
        "sinks": layer.sinks,
    }
    found = [field for field, value in more.items() if value is not None]
    if found:
        raise ValueError(
            f"layer {name!r} has {', '.join(found)}, which attention over quantised caches does not serve; use a plain "
            "cache"
        )


class QuantisedImpl(QuantisedModes, AttentionImpl[FlashAttentionMetadata]):
    """Quantises and stores the new keys and values, then attends over what is stored.

    Attributes:
        key_factor: what all keys are divided by, in modes without factors of their own (``FP8_PER_TENSOR``, and the
            keys of ``TURBOQUANT_K8V4``); elements above 448 times that are cut off. Set it before anything is
            stored: what is stored keeps no note of it.
        value_factor: the same for values (``FP8_PER_TENSOR``).
    """

    def __init__(self, layer: AttentionLayerConfig) -> None:
        super().__init__(layer)
        self.key_factor: float = 1.0
        self.value_factor: float = 1.0
        self._codec: tuple[float, float, SlotCodec] | None = None
        self._kernels: tuple[torch.dtype, QuantisedKernels] | None = None

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: FlashAttentionMetadata
    ) -> Tensor:
        check_counts(query, key)
        codec, kernels = self._open(kv_cache), self._kernels_of(query)
        kernels.write_slots(key, value, kv_cache, attn_metadata.slot_mapping, codec)
        return self.read(query, kv_cache=kv_cache, attn_metadata=attn_metadata)

    @override
    def read(self, query: Tensor, kv_cache: Tensor, attn_metadata: FlashAttentionMetadata) -> Tensor:
        codec, metadata = self._open(kv_cache), attn_metadata
        return self._kernels_of(query).paged_attention(
            query,
            kv_cache,
            codec,
            query_start_loc=metadata.query_start_loc,
            seq_lens=metadata.seq_lens,
            block_table=metadata.block_table,
            scale=self.layer.scale,
            causal=self.layer.causal and metadata.causal,
            max_query_len=metadata.max_query_len,
            max_seq_len=metadata.max_seq_len,
        )

    def _kernels_of(self, query: Tensor) -> QuantisedKernels:
        if self._kernels is None or self._kernels[0] != query.dtype:
            self._kernels = query.dtype, select_quantised_kernels(query.device, query.dtype)
        return self._kernels[1]

    def _open(self, kv_cache: Tensor) -> SlotCodec:
        """The codec for a cache; kept, since a layer's cache and factors stay the same."""
        factors = self.key_factor, self.value_factor
        if self._codec is None or self._codec[:2] != factors or not _codes(self._codec[2], kv_cache):
            slot = format_of_width(self.modes(), self.layer.head_size, kv_cache.shape[3])
            self._codec = (*factors, SlotCodec(slot, kv_cache.device, *factors))
        return self._codec[2]


def _codes(codec: SlotCodec, kv_cache: Tensor) -> bool:
    return codec.slot.slot_bytes == kv_cache.shape[3] and codec.device == kv_cache.device
