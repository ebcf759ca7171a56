"""`genericbuilders.backends.flash_attn` inside vLLM."""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.adapter import AttentionLayer
from genericbuilders.backends.flash_attn import FLASH_ATTN, FlashAttentionMetadata
from genericbuilders.config import AttentionLayerConfig
from genericbuilders_vllm.inside.backend import InsideBackend
from genericbuilders_vllm.inside.impl import InsideImpl

__all__ = ["FlashAttnBackend", "FlashAttnImpl"]


class FlashAttnImpl(InsideImpl[FlashAttentionMetadata]):
    """One layer of `FLASH_ATTN`."""

    @override
    def make_layer(self, name: str, config: AttentionLayerConfig) -> AttentionLayer[FlashAttentionMetadata]:
        return FLASH_ATTN.layer(name, config)


class FlashAttnBackend(InsideBackend):
    """`FLASH_ATTN`, for vLLM."""

    @staticmethod
    @override
    def get_impl_cls() -> type[FlashAttnImpl]:
        return FlashAttnImpl
