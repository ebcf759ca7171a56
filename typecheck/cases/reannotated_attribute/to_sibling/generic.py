"""A builder for keys and values states in its class that its spec is a state's, as the file it was copied from did.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, MambaSpec
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata


class StateTableBuilder(AttentionMetadataBuilder[FullMetadata, AttentionSpec]):
    """Full attention over a table that is cut by the shape of a state."""

    kv_cache_spec: MambaSpec  # E

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        rows = self.kv_cache_spec.shapes[0][0]
        return FullMetadata(common_attn_metadata.block_table_tensor[:, :rows], common_attn_metadata.seq_lens, rows)


STATE_TABLE: Final = BackendAdapter("state_table", StateTableBuilder, FullImpl)


def run() -> object:
    group, _ = place(STATE_TABLE, FULL_SPEC)
    return Runner([group]).build(two_requests())
