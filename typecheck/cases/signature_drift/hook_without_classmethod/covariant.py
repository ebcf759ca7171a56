"""The plug-in's graph-support hook is no class method, though the runner asks the class, before there is a builder.

At run time: TypeError: TreeBuilder.get_cudagraph_support() missing 1 required positional argument: 'kv_cache_spec'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.covariant.core import AttentionCGSupport, AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.shared.batch import CONFIG, FULL_SPEC
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


class TreeBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """A tree of pages, laid out anew."""

    @override
    def get_cudagraph_support(self, config: EngineConfig, kv_cache_spec: KVCacheSpec) -> AttentionCGSupport:  # E
        return AttentionCGSupport.ALWAYS

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.page_size_bytes)


TREE: Final = BackendAdapter("tree", TreeBuilder, PagedTreeImpl)


def run() -> object:
    return TREE.cudagraph_support(CONFIG, FULL_SPEC).name
