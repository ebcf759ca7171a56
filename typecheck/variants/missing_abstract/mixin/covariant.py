"""A builder's class body has no ``build``, and objects of it are made.

Right: a class that it derives from as well brings it.
"""

from __future__ import annotations

from typing import Final

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.core import AttentionMetadataBuilder, BackendAdapter, Step
from typecheck.designs.covariant.layers import Attention, place
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


class BuildsTrees:
    """Brings ``build`` to classes that have none."""

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        """The trees of one batch."""
        del common_prefix_len, fast_build
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, common_attn_metadata.num_reqs)


class MixedTreeBuilder(BuildsTrees, AttentionMetadataBuilder[PagedTreeMetadata]):
    """A tree builder without a ``build`` of its own."""


MIXED_TREE: Final = BackendAdapter("mixed_tree", MixedTreeBuilder, PagedTreeImpl)


def run() -> object:
    group, layer = place(MIXED_TREE, FULL_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
