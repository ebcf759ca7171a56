"""An override takes the slots before the block table; both are tensors, and the runner passes them by position.

At run time: wrong: 1; right: 2
"""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import PagedTreeMetadata
from typecheck.designs.widened.core import AttentionMetadataBuilder
from typecheck.designs.widened.plugin import PagedTreeBuilder


class TreeBuilder(PagedTreeBuilder):
    """A tree of pages, laid out anew."""

    @override
    def update_block_table(  # E?
        self,  # E?
        metadata: PagedTreeMetadata,  # E?
        slot_mapping: Tensor,  # E
        blk_table: Tensor,  # E?
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(blk_table[:, :1], metadata.page_size_bytes)


def moved(
    builder: AttentionMetadataBuilder[PagedTreeMetadata], metadata: PagedTreeMetadata, common: CommonAttentionMetadata
) -> PagedTreeMetadata:
    return builder.update_block_table(metadata, common.block_table_tensor, common.slot_mapping[None])


def run() -> object:
    builder = TreeBuilder(FULL_SPEC, ["tree"], CONFIG, CPU)
    common = two_requests()
    return moved(builder, builder.build(0, common), common).tree.shape[0]
