"""The plug-in's build is of the time before fast_build; a drafting runner asks for a fast build.

At run time: TypeError: TreeBuilder.build() got an unexpected keyword argument 'fast_build'
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
    def build(  # E
        self,  # E?
        common_prefix_len: int,  # E?
        common_attn_metadata: CommonAttentionMetadata,  # E?
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.page_size_bytes)


def draft(builder: AttentionMetadataBuilder[PagedTreeMetadata], common: CommonAttentionMetadata) -> PagedTreeMetadata:
    return builder.build(0, common, fast_build=True)


def run() -> object:
    return draft(TreeBuilder(FULL_SPEC, ["tree"], CONFIG, CPU), two_requests())
