"""A builder's class body has no ``build``, and objects of it are made.

Right: a class that it derives from as well brings it.
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata
from typecheck.designs.widened.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.widened.layers import Attention, place


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


class MixedTreeBackend(AttentionBackend):
    """Attention over a tree."""

    @staticmethod
    @override
    def get_name() -> str:
        return "mixed_tree"

    @staticmethod
    @override
    def get_builder_cls() -> type[MixedTreeBuilder]:
        return MixedTreeBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[PagedTreeImpl]:
        return PagedTreeImpl


def run() -> object:
    group = place(MixedTreeBackend, FULL_SPEC)
    step = group.build(two_requests())
    return Attention(MixedTreeBackend.get_name(), MixedTreeBackend).forward(step).sum().item()
