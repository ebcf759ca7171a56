"""The plug-in states its graph support under the hook's old name, and says that it overrides it.

At run time: wrong: 'NEVER'; right: 'ALWAYS'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.generic.core import AttentionCGSupport, AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.shared.batch import FULL_SPEC
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


class TreeBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """A tree of pages, laid out anew."""

    @classmethod
    @override
    def cudagraph_support(cls, config: EngineConfig, kv_cache_spec: KVCacheSpec) -> AttentionCGSupport:  # E
        del config, kv_cache_spec
        return AttentionCGSupport.ALWAYS

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.page_size_bytes)


TREE: Final = BackendAdapter("tree", TreeBuilder, PagedTreeImpl)


def run() -> object:
    group, _ = place(TREE, FULL_SPEC)
    return group.cudagraph_support().name
