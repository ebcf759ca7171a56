"""The plug-in's build calls the batch by a shorter name; the runner passes it by the base class's.

At run time: TypeError: TreeBuilder.build() got an unexpected keyword argument 'common_attn_metadata'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.core import AttentionMetadataBuilder, BackendAdapter, BoundGroup
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


class TreeBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """A tree of pages, laid out anew."""

    @override
    def build(  # E?
        self,  # E?
        common_prefix_len: int,  # E?
        common: CommonAttentionMetadata,  # E
        fast_build: bool = False,  # E?
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common.block_table_tensor, self.kv_cache_spec.page_size_bytes)


TREE: Final = BackendAdapter("tree", TreeBuilder, PagedTreeImpl)


def draft(group: BoundGroup[PagedTreeMetadata], common: CommonAttentionMetadata) -> PagedTreeMetadata:
    return group.builder.build(common_prefix_len=0, common_attn_metadata=common)


def run() -> object:
    group = TREE.bind(FULL_SPEC, [TREE.layer("tree", HEADS)], CONFIG, CPU)
    return draft(group, two_requests())
