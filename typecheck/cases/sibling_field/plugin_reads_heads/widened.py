"""An out-of-tree builder that declares no spec, and so is given any, reads key-value heads.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata
from typecheck.designs.widened.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.runner import Runner


class RadixBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """Out of tree: attention over a radix tree of pages. It says nothing about its spec."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        tree = common_attn_metadata.block_table_tensor.repeat(1, self.kv_cache_spec.num_kv_heads)  # E
        return PagedTreeMetadata(tree, self.kv_cache_spec.page_size_bytes)


class RadixBackend(AttentionBackend):
    """Attention over a radix tree of pages."""

    @staticmethod
    @override
    def get_name() -> str:
        return "radix"

    @staticmethod
    @override
    def get_builder_cls() -> type[RadixBuilder]:
        return RadixBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[PagedTreeImpl]:
        return PagedTreeImpl


def run() -> object:
    return Runner([place(RadixBackend, FULL_SPEC), place(RadixBackend, STATE_SPEC)]).build(two_requests())
