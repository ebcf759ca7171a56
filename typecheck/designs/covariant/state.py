"""Back ends that keep one state a request: Mamba2, the gated delta rule and linear attention."""

from __future__ import annotations

from abc import ABC
from typing import Final

from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec, MambaSpec
from typecheck.designs.covariant.core import AttentionCGSupport, AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.shared.kernels import GDNImpl, LinearImpl, Mamba2Impl
from typecheck.designs.shared.metadata import GDNMetadata, LinearMetadata, Mamba2Metadata

__all__ = [
    "GDN",
    "LINEAR",
    "MAMBA2",
    "BaseMambaMetadataBuilder",
    "GDNBuilder",
    "LinearBuilder",
    "Mamba2Builder",
]

M = TypeVar("M")


class BaseMambaMetadataBuilder(AttentionMetadataBuilder[M, MambaSpec], ABC):
    """What builders over states share."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: KVCacheSpec) -> AttentionCGSupport:
        if isinstance(kv_cache_spec, MambaSpec) and kv_cache_spec.num_speculative_blocks:
            return AttentionCGSupport.UNIFORM_BATCH
        return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    def num_states(self) -> int:
        """Tensors of one layer's state."""
        return len(self.kv_cache_spec.shapes)


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


class LinearBuilder(AttentionMetadataBuilder[LinearMetadata, MambaSpec]):
    """Linear attention."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> LinearMetadata:
        lengths = common_attn_metadata.query_start_loc_cpu.diff()
        return LinearMetadata(common_attn_metadata.block_table_tensor[:, 0], int((lengths == 1).sum()))


MAMBA2: Final = BackendAdapter("mamba2", Mamba2Builder, Mamba2Impl)
GDN: Final = BackendAdapter("gdn", GDNBuilder, GDNImpl)
LINEAR: Final = BackendAdapter("linear", LinearBuilder, LinearImpl)
