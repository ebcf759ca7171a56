"""A plug-in's builder says nothing about its spec; whether its graphs can be captured depends on the spec's heads.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.asserting.core import AttentionBackend, AttentionCGSupport, AttentionMetadataBuilder
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


class QuantTreeBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """Out of tree: attention over a tree of quantised pages."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: AttentionSpec) -> AttentionCGSupport:
        if kv_cache_spec.num_kv_heads % 2 == 0:  # E
            return AttentionCGSupport.ALWAYS
        return AttentionCGSupport.NEVER

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.page_size_bytes)


class QuantTreeBackend(AttentionBackend):
    """Attention over a tree of quantised pages."""

    @staticmethod
    @override
    def get_name() -> str:
        return "quant_tree"

    @staticmethod
    @override
    def get_builder_cls() -> type[QuantTreeBuilder]:
        return QuantTreeBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[PagedTreeImpl]:
        return PagedTreeImpl


def run() -> object:
    return Runner([place(QuantTreeBackend, FULL_SPEC), place(QuantTreeBackend, STATE_SPEC)]).cudagraph_support()
