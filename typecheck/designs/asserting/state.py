"""Back ends that keep one state a request: Mamba2, the gated delta rule and linear attention."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, MambaSpec
from typecheck.designs.asserting.core import AttentionBackend, AttentionCGSupport, AttentionMetadataBuilder
from typecheck.designs.shared.kernels import GDNImpl, LinearImpl, Mamba2Impl
from typecheck.designs.shared.metadata import GDNMetadata, LinearMetadata, Mamba2Metadata

__all__ = [
    "BaseMambaMetadataBuilder",
    "GDNBackend",
    "GDNBuilder",
    "LinearBackend",
    "LinearBuilder",
    "Mamba2Backend",
    "Mamba2Builder",
]

M = TypeVar("M")


class BaseMambaMetadataBuilder(AttentionMetadataBuilder[M], ABC):
    """What builders over states share."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        assert isinstance(kv_cache_spec, MambaSpec)
        self.shapes: tuple[tuple[int, ...], ...] = kv_cache_spec.shapes

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: AttentionSpec) -> AttentionCGSupport:
        if isinstance(kv_cache_spec, MambaSpec) and kv_cache_spec.num_speculative_blocks:
            return AttentionCGSupport.UNIFORM_BATCH
        return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    def num_states(self) -> int:
        """Tensors of one layer's state."""
        return len(self.shapes)


class Mamba2Builder(BaseMambaMetadataBuilder[Mamba2Metadata]):
    """A chunked scan."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        return Mamba2Metadata(common_attn_metadata.block_table_tensor[:, 0], self.num_states())

    @override
    def update_block_table(self, metadata: Mamba2Metadata, blk_table: Tensor, slot_mapping: Tensor) -> Mamba2Metadata:
        return Mamba2Metadata(blk_table[:, 0], metadata.num_states)


class GDNBuilder(BaseMambaMetadataBuilder[GDNMetadata]):
    """The gated delta rule."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> GDNMetadata:
        columns = 1 + self.config.num_speculative_tokens
        return GDNMetadata(common_attn_metadata.block_table_tensor[:, :columns], self.config.num_speculative_tokens)


class LinearBuilder(AttentionMetadataBuilder[LinearMetadata]):
    """Linear attention."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        assert isinstance(kv_cache_spec, MambaSpec)

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> LinearMetadata:
        lengths = common_attn_metadata.query_start_loc_cpu.diff()
        return LinearMetadata(common_attn_metadata.block_table_tensor[:, 0], int((lengths == 1).sum()))


class Mamba2Backend(AttentionBackend):
    """A chunked scan."""

    @staticmethod
    @override
    def get_name() -> str:
        return "mamba2"

    @staticmethod
    @override
    def get_builder_cls() -> type[Mamba2Builder]:
        return Mamba2Builder

    @staticmethod
    @override
    def get_impl_cls() -> type[Mamba2Impl]:
        return Mamba2Impl


class GDNBackend(AttentionBackend):
    """The gated delta rule."""

    @staticmethod
    @override
    def get_name() -> str:
        return "gdn"

    @staticmethod
    @override
    def get_builder_cls() -> type[GDNBuilder]:
        return GDNBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[GDNImpl]:
        return GDNImpl


class LinearBackend(AttentionBackend):
    """Linear attention."""

    @staticmethod
    @override
    def get_name() -> str:
        return "linear"

    @staticmethod
    @override
    def get_builder_cls() -> type[LinearBuilder]:
        return LinearBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[LinearImpl]:
        return LinearImpl
