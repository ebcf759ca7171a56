"""An intermediate derives from the bare base, so that nothing holds a builder over it to one kind of metadata: one
method takes other metadata than another makes.

At run time: AttributeError: 'PagedTreeMetadata' object has no attribute 'seq_lens'
"""

from __future__ import annotations

from abc import ABC

import torch
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.core import AttentionMetadataBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata, PagedTreeMetadata

M = TypeVar("M")


class BasePagedBuilder(AttentionMetadataBuilder, ABC):  # E
    """What builders over pages share."""

    def page_size(self) -> int:
        """Bytes of one page."""
        return self.kv_cache_spec.page_size_bytes


class TreeBuilder(BasePagedBuilder):
    """Attention over a tree of pages."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> PagedTreeMetadata:
        return PagedTreeMetadata(common_attn_metadata.block_table_tensor, self.page_size())

    @override
    def update_block_table(self, metadata: FullMetadata, blk_table: Tensor, slot_mapping: Tensor) -> FullMetadata:
        return FullMetadata(blk_table, metadata.seq_lens, metadata.num_kv_heads)


def moved(builder: AttentionMetadataBuilder[M], blk_table: Tensor, slot_mapping: Tensor) -> M:
    """A batch's metadata for another group's blocks."""
    return builder.update_block_table(builder.build(0, two_requests()), blk_table, slot_mapping)


def run() -> object:
    builder = TreeBuilder(FULL_SPEC, ["attn"], CONFIG, CPU)
    return moved(builder, torch.tensor([[7], [8]]), torch.zeros(4))
