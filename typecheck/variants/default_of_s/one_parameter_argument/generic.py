"""A function takes a plug-in's builder with its metadata type named only; plug-ins name all of their types.

Right: what the function leaves out is what they name.
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.plugin import PagedTreeBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


class WrittenOutBuilder(AttentionMetadataBuilder[PagedTreeMetadata, KVCacheSpec]):
    """A plug-in that says all of its types."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.block_size)


def page_bytes(builder: AttentionMetadataBuilder[PagedTreeMetadata]) -> int:
    return builder.build(0, two_requests()).page_size_bytes


WRITTEN_OUT: Final = BackendAdapter("written_out", WrittenOutBuilder, PagedTreeImpl)


def run() -> object:
    written_out, _ = place(WRITTEN_OUT, FULL_SPEC)
    return page_bytes(written_out.builder), page_bytes(PagedTreeBuilder(FULL_SPEC, ["attn"], CONFIG, CPU))
