"""The builder of a linear layer says, and returns, the gated delta rule's metadata.

At run time: AttributeError: 'GDNMetadata' object has no attribute 'num_decodes'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.layers import Attention, place
from typecheck.designs.asserting.state import LinearBackend, LinearBuilder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import GDNMetadata


class LightningBuilder(LinearBuilder):
    """Linear attention, batched anew."""

    @override
    def build(  # E?
        self,  # E?
        common_prefix_len: int,  # E?
        common_attn_metadata: CommonAttentionMetadata,  # E?
        fast_build: bool = False,  # E?
    ) -> GDNMetadata:  # E
        return GDNMetadata(common_attn_metadata.block_table_tensor, 1)


class LightningBackend(LinearBackend):
    """Linear attention with that builder."""

    @staticmethod
    @override
    def get_builder_cls() -> type[LightningBuilder]:
        return LightningBuilder


def run() -> object:
    step = place(LightningBackend, STATE_SPEC).build(two_requests())
    return Attention("linear", LightningBackend).forward(step).sum().item()
