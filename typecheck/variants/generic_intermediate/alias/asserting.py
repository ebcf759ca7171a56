"""A plug-in derives from an alias of the base with its arguments filled in.

Right: the alias is the base itself.
"""

from __future__ import annotations

from typing import TypeAlias

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.asserting.layers import Attention, place
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata

TreeBuilderBase: TypeAlias = AttentionMetadataBuilder[PagedTreeMetadata]


class ForestBuilder(TreeBuilderBase):
    """Attention over several trees of pages."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, 2 * self.kv_cache_spec.page_size_bytes)


class ForestBackend(AttentionBackend):
    """Attention over trees."""

    @staticmethod
    @override
    def get_name() -> str:
        return "forest"

    @staticmethod
    @override
    def get_builder_cls() -> type[ForestBuilder]:
        return ForestBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[PagedTreeImpl]:
        return PagedTreeImpl


def run() -> object:
    group = place(ForestBackend, FULL_SPEC)
    step = group.build(two_requests())
    return Attention(ForestBackend.get_name(), ForestBackend).forward(step).sum().item()
