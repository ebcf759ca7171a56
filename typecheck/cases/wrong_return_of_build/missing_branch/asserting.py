"""The builder has nothing to say about a batch of short queries, and says nothing.

At run time: AttributeError: 'NoneType' object has no attribute 'num_decodes'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.layers import Attention, place
from typecheck.designs.asserting.state import LinearBackend, LinearBuilder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import LinearMetadata


class LightningBuilder(LinearBuilder):
    """Linear attention, batched anew."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> LinearMetadata:
        rows = common_attn_metadata.block_table_tensor[:, 0]
        if common_attn_metadata.max_query_len > 3:
            return LinearMetadata(rows, 1)
        return None  # E


class LightningBackend(LinearBackend):
    """Linear attention with that builder."""

    @staticmethod
    @override
    def get_builder_cls() -> type[LightningBuilder]:
        return LightningBuilder


def run() -> object:
    step = place(LightningBackend, STATE_SPEC).build(two_requests())
    return Attention("linear", LightningBackend).forward(step).sum().item()
