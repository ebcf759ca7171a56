"""The builder has nothing to say about a batch of short queries, and says nothing.

At run time: AttributeError: 'NoneType' object has no attribute 'num_decodes'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.core import BackendAdapter, Step
from typecheck.designs.covariant.layers import Attention, place
from typecheck.designs.covariant.state import LinearBuilder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import LinearImpl
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


LIGHTNING: Final = BackendAdapter("lightning", LightningBuilder, LinearImpl)


def run() -> object:
    group, layer = place(LIGHTNING, STATE_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
