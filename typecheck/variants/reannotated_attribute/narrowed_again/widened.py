"""A builder derives from the full one and takes its spec to be narrower than that one says.

Right: it is only ever given a latent layer's spec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MLAAttentionSpec
from typecheck.designs.shared.batch import MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.attention import FullBuilder
from typecheck.designs.widened.core import AttentionBackend
from typecheck.designs.widened.layers import Attention, place


class PackedLatentBuilder(FullBuilder):
    """Reads the alignment of a latent layer's pages."""

    kv_cache_spec: MLAAttentionSpec

    def __init__(
        self, kv_cache_spec: MLAAttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        made = super().build(common_prefix_len, common_attn_metadata, fast_build)
        return replace(made, num_kv_heads=self.kv_cache_spec.alignment or 1)


class PackedLatentBackend(AttentionBackend):
    """Latent attention on the full kernel."""

    @staticmethod
    @override
    def get_name() -> str:
        return "packed_latent"

    @staticmethod
    @override
    def get_builder_cls() -> type[PackedLatentBuilder]:
        return PackedLatentBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[FullImpl]:
        return FullImpl


ALIGNED_SPEC: Final = replace(MLA_SPEC, alignment=64)


def run() -> object:
    group = place(PackedLatentBackend, ALIGNED_SPEC)
    step = group.build(two_requests())
    return Attention(PackedLatentBackend.get_name(), PackedLatentBackend).forward(step).sum().item()
