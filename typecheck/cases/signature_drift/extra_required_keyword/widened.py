"""The plug-in's build asks for draft tokens besides, which its own fork of the runner gives and no other does.

At run time: TypeError: TreeBuilder.build() missing 1 required keyword-only argument: 'draft_tokens'
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import PagedTreeMetadata
from typecheck.designs.widened.core import AttentionMetadataBuilder


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


def draft(builder: AttentionMetadataBuilder[PagedTreeMetadata], common: CommonAttentionMetadata) -> PagedTreeMetadata:
    return builder.build(0, common)


def run() -> object:
    return draft(TreeBuilder(FULL_SPEC, ["tree"], CONFIG, CPU), two_requests())
