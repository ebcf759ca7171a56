"""An intermediate class is about any attention layer's spec; one builder below it is about a latent layer's.

Right: the narrower spec is one that the intermediate class can work with.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import replace

import torch
from typing_extensions import TypeVar, override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, MLAAttentionSpec
from typecheck.designs.asserting.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.asserting.layers import Attention, place
from typecheck.designs.asserting.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl, MLAImpl
from typecheck.designs.shared.metadata import FullMetadata, MLAMetadata

M = TypeVar("M")


class PagedBuilder(AttentionMetadataBuilder[M], ABC):
    """What builders over pages of keys and values share."""

    def heads(self) -> int:
        """Key-value heads of one layer."""
        return self.kv_cache_spec.num_kv_heads


class WideBuilder(PagedBuilder[FullMetadata]):
    """Full attention."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        return FullMetadata(common_attn_metadata.block_table_tensor, common_attn_metadata.seq_lens, self.heads())


class LatentBuilder(PagedBuilder[MLAMetadata]):
    """Latent attention."""

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
        return MLAMetadata(common_attn_metadata.block_table_tensor, self.heads() * self.alignment)


class WideBackend(AttentionBackend):
    """Full attention."""

    @staticmethod
    @override
    def get_name() -> str:
        return "wide"

    @staticmethod
    @override
    def get_builder_cls() -> type[WideBuilder]:
        return WideBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[FullImpl]:
        return FullImpl


class LatentBackend(AttentionBackend):
    """Latent attention."""

    @staticmethod
    @override
    def get_name() -> str:
        return "latent"

    @staticmethod
    @override
    def get_builder_cls() -> type[LatentBuilder]:
        return LatentBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[MLAImpl]:
        return MLAImpl


def run() -> object:
    step = Runner([place(WideBackend, FULL_SPEC), place(LatentBackend, replace(MLA_SPEC, alignment=64))]).build(
        two_requests()
    )
    modules = [Attention("wide", WideBackend), Attention("latent", LatentBackend)]
    return [module.forward(step).sum().item() for module in modules]
