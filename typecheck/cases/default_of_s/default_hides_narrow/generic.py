"""The author forgets to say that the builder is for states, and reads a state's field.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'num_speculative_blocks'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter, Step
from typecheck.designs.generic.layers import place
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import LinearImpl
from typecheck.designs.shared.metadata import LinearMetadata


class SpeculativeLinearBuilder(AttentionMetadataBuilder[LinearMetadata]):
    """Linear attention that rolls rejected tokens back."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> LinearMetadata:
        columns = 1 + self.kv_cache_spec.num_speculative_blocks  # E
        return LinearMetadata(common_attn_metadata.block_table_tensor[:, :columns], common_attn_metadata.num_reqs)


SPECULATIVE: Final = BackendAdapter("speculative", SpeculativeLinearBuilder, LinearImpl)


def run() -> object:
    group, layer = place(SPECULATIVE, FULL_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return step[layer]
