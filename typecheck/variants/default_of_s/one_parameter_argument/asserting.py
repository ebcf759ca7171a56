"""A function takes a plug-in's builder with its metadata type named only; plug-ins name all of their types.

Right: what the function leaves out is what they name.
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.core import AttentionMetadataBuilder
from typecheck.designs.asserting.plugin import PagedTreeBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import PagedTreeMetadata


class WrittenOutBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """A plug-in that says all of its types."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.block_size)


def page_bytes(builder: AttentionMetadataBuilder[PagedTreeMetadata]) -> int:
    return builder.build(0, two_requests()).page_size_bytes


def run() -> object:
    written_out = WrittenOutBuilder(FULL_SPEC, ["attn"], CONFIG, CPU)
    return page_bytes(written_out), page_bytes(PagedTreeBuilder(FULL_SPEC, ["attn"], CONFIG, CPU))
