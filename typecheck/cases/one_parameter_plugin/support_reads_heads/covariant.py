"""A plug-in's builder says nothing about its spec; whether its graphs can be captured depends on the spec's heads.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.covariant.core import AttentionCGSupport, AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


class QuantTreeBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """Out of tree: attention over a tree of quantised pages."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: KVCacheSpec) -> AttentionCGSupport:
        if kv_cache_spec.num_kv_heads % 2 == 0:  # E
            return AttentionCGSupport.ALWAYS
        return AttentionCGSupport.NEVER

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.page_size_bytes)


QUANT_TREE: Final = BackendAdapter("quant_tree", QuantTreeBuilder, PagedTreeImpl)


def run() -> object:
    first, _ = place(QUANT_TREE, FULL_SPEC)
    second, _ = place(QUANT_TREE, STATE_SPEC)
    return Runner([first, second]).cudagraph_support()
