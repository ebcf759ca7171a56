"""The plug-in's build takes the batch first, so that the prefix's length may be left out; the runner passes both by
position.

At run time: AttributeError: 'int' object has no attribute 'block_table_tensor'
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
        common_attn_metadata: CommonAttentionMetadata,  # E
        common_prefix_len: int = 0,  # E?
        fast_build: bool = False,  # E?
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.page_size_bytes)


def draft(builder: AttentionMetadataBuilder[PagedTreeMetadata], common: CommonAttentionMetadata) -> PagedTreeMetadata:
    return builder.build(0, common)


def run() -> object:
    return draft(TreeBuilder(FULL_SPEC, ["tree"], CONFIG, CPU), two_requests())
