"""The plug-in's kernel writes into a tensor that it is given, as in a later version of the interface.

At run time: TypeError: TreeImpl.forward() missing 1 required positional argument: 'output'
"""

from __future__ import annotations

from typing import Final

from torch import Tensor
from typing_extensions import override

from typecheck.designs.covariant.core import AttentionImpl, BackendAdapter, Step
from typecheck.designs.covariant.layers import Attention, place
from typecheck.designs.covariant.plugin import PagedTreeBuilder
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import PagedTreeMetadata


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


TREE: Final = BackendAdapter("tree", PagedTreeBuilder, TreeImpl)


def run() -> object:
    group, layer = place(TREE, FULL_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step)
