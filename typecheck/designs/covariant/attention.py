"""Back ends that cache keys and values: full, latent, and one that plans over differing layers."""

from __future__ import annotations

from abc import ABC
from typing import Final

from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, KVCacheSpec, MLAAttentionSpec, UniformTypeKVCacheSpecs
from typecheck.designs.covariant.core import AttentionCGSupport, AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.shared.kernels import FlashInferImpl, FullImpl, MLAImpl
from typecheck.designs.shared.metadata import FlashInferMetadata, FullMetadata, MLAMetadata

__all__ = [
    "FLASHINFER",
    "FULL",
    "MLA",
    "FlashInferBuilder",
    "FullBuilder",
    "MLABuilder",
    "MLACommonMetadataBuilder",
    "heads_of",
]

M = TypeVar("M")


class FullBuilder(AttentionMetadataBuilder[FullMetadata, AttentionSpec]):
    """Full attention."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: KVCacheSpec) -> AttentionCGSupport:
        if isinstance(kv_cache_spec, AttentionSpec) and kv_cache_spec.num_kv_heads > 1:
            return AttentionCGSupport.ALWAYS
        return AttentionCGSupport.UNIFORM_BATCH

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        return FullMetadata(
            common_attn_metadata.block_table_tensor, common_attn_metadata.seq_lens, self.kv_cache_spec.num_kv_heads
        )

    @override
    def update_block_table(self, metadata: FullMetadata, blk_table: Tensor, slot_mapping: Tensor) -> FullMetadata:
        return FullMetadata(blk_table, metadata.seq_lens, metadata.num_kv_heads)


class MLACommonMetadataBuilder(AttentionMetadataBuilder[M, MLAAttentionSpec], ABC):
    """What builders of latent attention share, whatever metadata they make."""

    def latent_size(self) -> int:
        """Elements of one token's latent vector."""
        return self.kv_cache_spec.head_size


class MLABuilder(MLACommonMetadataBuilder[MLAMetadata]):
    """Latent attention."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLAMetadata:
        return MLAMetadata(common_attn_metadata.block_table_tensor, self.latent_size())


class FlashInferBuilder(AttentionMetadataBuilder[FlashInferMetadata, AttentionSpec | UniformTypeKVCacheSpecs]):
    """Attention from a plan, for layers that may differ."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashInferMetadata:
        return FlashInferMetadata(common_attn_metadata.query_start_loc, heads_of(self.kv_cache_spec))


def heads_of(spec: AttentionSpec | UniformTypeKVCacheSpecs) -> tuple[int, ...]:
    """Key-value heads of each layer."""
    if isinstance(spec, UniformTypeKVCacheSpecs):
        return tuple(inner.num_kv_heads for inner in spec.kv_cache_specs.values() if isinstance(inner, AttentionSpec))
    return (spec.num_kv_heads,)


FULL: Final = BackendAdapter("full", FullBuilder, FullImpl)
MLA: Final = BackendAdapter("mla", MLABuilder, MLAImpl)
FLASHINFER: Final = BackendAdapter("flashinfer", FlashInferBuilder, FlashInferImpl)
