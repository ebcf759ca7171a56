"""An out-of-tree back end: it reads what every spec has."""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata

__all__ = ["PagedTreeBackend", "PagedTreeBuilder"]


class PagedTreeBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """Attention over a tree of pages."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.page_size_bytes)


class PagedTreeBackend(AttentionBackend):
    """Attention over a tree of pages."""

    @staticmethod
    @override
    def get_name() -> str:
        return "paged_tree"

    @staticmethod
    @override
    def get_builder_cls() -> type[PagedTreeBuilder]:
        return PagedTreeBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[PagedTreeImpl]:
        return PagedTreeImpl
