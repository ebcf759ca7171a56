"""The plug-in's graph-support hook is no class method, though the runner asks the class, before there is a builder.

At run time: TypeError: TreeBuilder.get_cudagraph_support() missing 1 required positional argument: 'kv_cache_spec'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.shared.batch import FULL_SPEC
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata
from typecheck.designs.widened.core import AttentionBackend, AttentionCGSupport, AttentionMetadataBuilder
from typecheck.designs.widened.layers import place


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


class TreeBackend(AttentionBackend):
    """The back end that configurations call "tree"."""

    @staticmethod
    @override
    def get_name() -> str:
        return "tree"

    @staticmethod
    @override
    def get_builder_cls() -> type[TreeBuilder]:
        return TreeBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[PagedTreeImpl]:
        return PagedTreeImpl


def run() -> object:
    return place(TreeBackend, FULL_SPEC).cudagraph_support().name
