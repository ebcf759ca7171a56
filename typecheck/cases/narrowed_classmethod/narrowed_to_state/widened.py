"""A builder that takes any spec narrows its graph-support hook to the state's spec, whose field the hook reads.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'num_speculative_blocks'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MambaSpec
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata
from typecheck.designs.widened.core import AttentionBackend, AttentionCGSupport, AttentionMetadataBuilder
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.runner import Runner


class TreeScanBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """Out of tree: walks pages of any kind, of keys and values or of states."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: MambaSpec) -> AttentionCGSupport:  # E
        if kv_cache_spec.num_speculative_blocks:
            return AttentionCGSupport.UNIFORM_BATCH
        return AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.page_size_bytes)


class TreeScanBackend(AttentionBackend):
    """Walks pages of any kind."""

    @staticmethod
    @override
    def get_name() -> str:
        return "tree_scan"

    @staticmethod
    @override
    def get_builder_cls() -> type[TreeScanBuilder]:
        return TreeScanBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[PagedTreeImpl]:
        return PagedTreeImpl


def run() -> object:
    return Runner([place(TreeScanBackend, STATE_SPEC), place(TreeScanBackend, FULL_SPEC)]).cudagraph_support()
