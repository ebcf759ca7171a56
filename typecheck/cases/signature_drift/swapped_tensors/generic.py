"""An override takes the slots before the block table; both are tensors, and the runner passes them by position.

At run time: wrong: 1; right: 2
"""

from __future__ import annotations

from typing import Final

from torch import Tensor
from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.generic.core import BackendAdapter, BoundGroup, Step
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.plugin import PagedTreeBuilder
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import PagedTreeImpl
from typecheck.designs.shared.metadata import PagedTreeMetadata


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


TREE: Final = BackendAdapter("tree", TreeBuilder, PagedTreeImpl)


def moved(group: BoundGroup[PagedTreeMetadata], step: Step, common: CommonAttentionMetadata) -> PagedTreeMetadata:
    return group.update_block_table(group.metadata(step), common.block_table_tensor, common.slot_mapping[None])


def run() -> object:
    group, _ = place(TREE, FULL_SPEC)
    step, common = Step(), two_requests()
    group.build(common, step)
    return moved(group, step, common).tree.shape[0]
