"""The builder of a linear layer says, and returns, the gated delta rule's metadata.

At run time: AttributeError: 'GDNMetadata' object has no attribute 'num_decodes'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.generic.core import BackendAdapter, Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.generic.state import LinearBuilder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import LinearImpl
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


LIGHTNING: Final = BackendAdapter("lightning", LightningBuilder, LinearImpl)


def run() -> object:
    group, layer = place(LIGHTNING, STATE_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
