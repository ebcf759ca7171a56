"""The plug-in's build takes its own kind of batch, with draft tokens, which only its own runner makes.

At run time: AttributeError: 'CommonAttentionMetadata' object has no attribute 'num_draft_tokens'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.core import AttentionMetadataBuilder, BackendAdapter, BoundGroup
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


@dataclass(frozen=True)
class SpeculativeCommonMetadata(CommonAttentionMetadata):
    """A batch whose rows carry draft tokens."""

    num_draft_tokens: int = 1


class TreeBuilder(AttentionMetadataBuilder[PagedTreeMetadata]):
    """A tree of pages, laid out anew."""

    @override
    def build(  # E?
        self,  # E?
        common_prefix_len: int,  # E?
        common_attn_metadata: SpeculativeCommonMetadata,  # E
        fast_build: bool = False,  # E?
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, common_attn_metadata.num_draft_tokens)


TREE: Final = BackendAdapter("tree", TreeBuilder, PagedTreeImpl)


def draft(group: BoundGroup[PagedTreeMetadata], common: CommonAttentionMetadata) -> PagedTreeMetadata:
    return group.builder.build(0, common)


def run() -> object:
    group = TREE.bind(FULL_SPEC, [TREE.layer("tree", HEADS)], CONFIG, CPU)
    return draft(group, two_requests())
