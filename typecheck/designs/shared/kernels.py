"""What each small back end computes: enough to tell which metadata it was given."""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from genericbuilders.builder import AttentionImpl
from typecheck.designs.shared.metadata import (
    FlashInferMetadata,
    FullMetadata,
    GDNMetadata,
    LinearMetadata,
    Mamba2Metadata,
    MLAMetadata,
    PagedTreeMetadata,
)

__all__ = ["FlashInferImpl", "FullImpl", "GDNImpl", "LinearImpl", "MLAImpl", "Mamba2Impl", "PagedTreeImpl"]


class FullImpl(AttentionImpl[FullMetadata]):
    """Full attention."""

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: FullMetadata
    ) -> Tensor:
        return query * attn_metadata.num_kv_heads


class MLAImpl(AttentionImpl[MLAMetadata]):
    """Latent attention."""

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: MLAMetadata
    ) -> Tensor:
        return query * attn_metadata.latent_size


class FlashInferImpl(AttentionImpl[FlashInferMetadata]):
    """Attention from a plan."""

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: FlashInferMetadata
    ) -> Tensor:
        return query * sum(attn_metadata.num_kv_heads)


class Mamba2Impl(AttentionImpl[Mamba2Metadata]):
    """A chunked scan."""

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: Mamba2Metadata
    ) -> Tensor:
        return query * attn_metadata.num_states


class GDNImpl(AttentionImpl[GDNMetadata]):
    """The gated delta rule."""

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: GDNMetadata
    ) -> Tensor:
        return query * attn_metadata.num_speculative_tokens


class LinearImpl(AttentionImpl[LinearMetadata]):
    """Linear attention."""

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: LinearMetadata
    ) -> Tensor:
        return query * attn_metadata.num_decodes


class PagedTreeImpl(AttentionImpl[PagedTreeMetadata]):
    """The out-of-tree back end's kernel."""

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: PagedTreeMetadata
    ) -> Tensor:
        return query * attn_metadata.page_size_bytes
