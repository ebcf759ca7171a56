"""An out-of-tree back end, written against the one-parameter base: it reads what every spec has."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.core import AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata

__all__ = ["PAGED_TREE", "PagedTreeBuilder"]


class PagedTreeBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """Attention over a tree of pages."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.page_size_bytes)


PAGED_TREE: Final = BackendAdapter("paged_tree", PagedTreeBuilder, PagedTreeImpl)
