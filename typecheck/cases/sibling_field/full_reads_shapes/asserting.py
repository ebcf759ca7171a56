"""A builder for keys and values counts rows in the state's shapes, which only its neighbour's spec has.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.core import AttentionMetadataBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata


class PackedBuilder(AttentionMetadataBuilder[FullMetadata]):
    """Full attention over rows that a state-space layer packs."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        table = common_attn_metadata.block_table_tensor
        return FullMetadata(table, common_attn_metadata.seq_lens, self.kv_cache_spec.shapes[0][0])  # E


def run() -> object:
    return PackedBuilder(FULL_SPEC, ["attn"], CONFIG, CPU).build(0, two_requests())
