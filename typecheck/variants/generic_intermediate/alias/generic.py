"""A plug-in derives from an alias of the base with its arguments filled in.

Right: the alias is the base itself.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter, Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata

TreeBuilderBase: TypeAlias = AttentionMetadataBuilder[PagedTreeMetadata, AttentionSpec]


class ForestBuilder(TreeBuilderBase):
    """Attention over several trees of pages."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, 2 * self.kv_cache_spec.page_size_bytes)


FOREST: Final = BackendAdapter("forest", ForestBuilder, PagedTreeImpl)


def run() -> object:
    group, layer = place(FOREST, FULL_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
