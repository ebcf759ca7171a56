"""The plug-in states its graph support as an attribute of the class, as it once was done, and not by the hook.

At run time: wrong: 'NEVER'; right: 'ALWAYS'
"""

from __future__ import annotations

from typing import ClassVar, Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.generic.core import AttentionCGSupport, AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.shared.batch import FULL_SPEC
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


class TreeBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """A tree of pages, laid out anew."""

    cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.ALWAYS  # E

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.page_size_bytes)


TREE: Final = BackendAdapter("tree", TreeBuilder, PagedTreeImpl)


def run() -> object:
    group, _ = place(TREE, FULL_SPEC)
    return group.cudagraph_support().name
