"""The plug-in's build calls the batch by a shorter name; the runner passes it by the base class's.

At run time: TypeError: TreeBuilder.build() got an unexpected keyword argument 'common_attn_metadata'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.core import AttentionMetadataBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
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


def draft(builder: AttentionMetadataBuilder[PagedTreeMetadata], common: CommonAttentionMetadata) -> PagedTreeMetadata:
    return builder.build(common_prefix_len=0, common_attn_metadata=common)


def run() -> object:
    return draft(TreeBuilder(FULL_SPEC, ["tree"], CONFIG, CPU), two_requests())
