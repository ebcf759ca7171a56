"""The plug-in's build takes its own kind of batch, with draft tokens, which only its own runner makes.

At run time: AttributeError: 'CommonAttentionMetadata' object has no attribute 'num_draft_tokens'
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import PagedTreeMetadata
from typecheck.designs.widened.core import AttentionMetadataBuilder


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


def draft(builder: AttentionMetadataBuilder[PagedTreeMetadata], common: CommonAttentionMetadata) -> PagedTreeMetadata:
    return builder.build(0, common)


def run() -> object:
    return draft(TreeBuilder(FULL_SPEC, ["tree"], CONFIG, CPU), two_requests())
