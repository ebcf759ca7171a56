"""The plug-in's build asks for draft tokens besides, which its own fork of the runner gives and no other does.

At run time: SignatureMismatchError: give build the signature of its base class
"""

from __future__ import annotations

from typing import Final

from torch import Tensor
from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter, BoundGroup
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


class TreeBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """A tree of pages, laid out anew."""

    @override
    def build(  # E?
        self,  # E?
        common_prefix_len: int,  # E?
        common_attn_metadata: CommonAttentionMetadata,  # E?
        fast_build: bool = False,  # E?
        *,  # E?
        draft_tokens: Tensor,  # E
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, draft_tokens.numel())


TREE: Final = BackendAdapter("tree", TreeBuilder, PagedTreeImpl)


def draft(group: BoundGroup[PagedTreeMetadata], common: CommonAttentionMetadata) -> PagedTreeMetadata:
    return group.builder.build(0, common)


def run() -> object:
    group = TREE.bind(FULL_SPEC, [TREE.layer("tree", HEADS)], CONFIG, CPU)
    return draft(group, two_requests())
