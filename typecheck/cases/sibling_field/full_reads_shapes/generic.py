"""A builder for keys and values counts rows in the state's shapes, which only its neighbour's spec has.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata


class PackedBuilder(AttentionMetadataBuilder[FullMetadata, AttentionSpec]):
    """Full attention over rows that a state-space layer packs."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        table = common_attn_metadata.block_table_tensor
        return FullMetadata(table, common_attn_metadata.seq_lens, self.kv_cache_spec.shapes[0][0])  # E


PACKED: Final = BackendAdapter("packed", PackedBuilder, FullImpl)


def run() -> object:
    group, _ = place(PACKED, FULL_SPEC)
    return Runner([group]).build(two_requests())
