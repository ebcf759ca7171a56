"""A builder over states looks the heads up by name, which a spec of states has none of.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.state import Mamba2Builder
from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata


class RepeatedHeadsBuilder(Mamba2Builder):
    """A chunked scan that repeats its states for each key-value head."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        num_kv_heads: int = getattr(self.kv_cache_spec, "num_kv_heads")  # E
        return Mamba2Metadata(common_attn_metadata.block_table_tensor[:, 0], num_kv_heads)


def run() -> object:
    return RepeatedHeadsBuilder(STATE_SPEC, ["mixer"], CONFIG, CPU).build(0, two_requests()).num_states
