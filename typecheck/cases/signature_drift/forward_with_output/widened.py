"""The plug-in's kernel writes into a tensor that it is given, as in a later version of the interface.

At run time: TypeError: TreeImpl.forward() missing 1 required positional argument: 'output'
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import PagedTreeMetadata
from typecheck.designs.widened.core import AttentionBackend, AttentionImpl
from typecheck.designs.widened.layers import Attention, place
from typecheck.designs.widened.plugin import PagedTreeBuilder


class TreeImpl(AttentionImpl[PagedTreeMetadata]):
    """The tree's kernel."""

    @override
    def forward(  # E?
        self,  # E?
        query: Tensor,  # E?
        key: Tensor,  # E?
        value: Tensor,  # E?
        kv_cache: Tensor,  # E?
        attn_metadata: PagedTreeMetadata,  # E?
        output: Tensor,  # E
    ) -> Tensor:
        return output.copy_(query * attn_metadata.page_size_bytes)


class TreeBackend(AttentionBackend):
    """The back end that configurations call "tree"."""

    @staticmethod
    @override
    def get_name() -> str:
        return "tree"

    @staticmethod
    @override
    def get_builder_cls() -> type[PagedTreeBuilder]:
        return PagedTreeBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[TreeImpl]:
        return TreeImpl


def run() -> object:
    return Attention("tree", TreeBackend).forward(place(TreeBackend, FULL_SPEC).build(two_requests()))
