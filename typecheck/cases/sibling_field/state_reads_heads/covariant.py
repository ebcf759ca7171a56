"""A builder over states, begun as a copy of an attention one, still reads key-value heads from its spec.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.core import BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.covariant.state import LinearBuilder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import LinearImpl
from typecheck.designs.shared.metadata import LinearMetadata


class RetentionBuilder(LinearBuilder):
    """Retention: a state for each head."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> LinearMetadata:
        first = common_attn_metadata.block_table_tensor[:, :1]
        states = first.repeat(1, self.kv_cache_spec.num_kv_heads)  # E
        return LinearMetadata(states, common_attn_metadata.num_reqs)


RETENTION: Final = BackendAdapter("retention", RetentionBuilder, LinearImpl)


def run() -> object:
    group, _ = place(RETENTION, STATE_SPEC)
    return Runner([group]).build(two_requests())
