"""A latent builder, written on the base itself, takes its spec to be narrower than the base says.

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
from genericbuilders.specs import AttentionSpec, MLAAttentionSpec
from typecheck.designs.asserting.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.asserting.layers import Attention, place
from typecheck.designs.shared.batch import MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import MLAImpl
from typecheck.designs.shared.metadata import MLAMetadata


class PackedLatentBuilder(AttentionMetadataBuilder[MLAMetadata]):
    """Reads the alignment of a latent layer's pages."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        assert isinstance(kv_cache_spec, MLAAttentionSpec)
        self.alignment: int = kv_cache_spec.alignment or 1

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLAMetadata:
        return MLAMetadata(common_attn_metadata.block_table_tensor, self.alignment)


class PackedLatentBackend(AttentionBackend):
    """Latent attention."""

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
    def get_impl_cls() -> type[MLAImpl]:
        return MLAImpl


ALIGNED_SPEC: Final = replace(MLA_SPEC, alignment=64)


def run() -> object:
    group = place(PackedLatentBackend, ALIGNED_SPEC)
    step = group.build(two_requests())
    return Attention(PackedLatentBackend.get_name(), PackedLatentBackend).forward(step).sum().item()
