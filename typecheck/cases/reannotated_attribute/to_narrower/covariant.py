"""A builder for any keys and values narrows its spec to the full one, to read one field; windowed layers use it too.

At run time: AttributeError: 'SlidingWindowSpec' object has no attribute 'non_causal'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import FullAttentionSpec
from typecheck.designs.covariant.attention import FullBuilder
from typecheck.designs.covariant.core import BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.shared.batch import WINDOW_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata


class CausalFullBuilder(FullBuilder):
    """Full attention that tells causal layers from others."""

    kv_cache_spec: FullAttentionSpec  # E

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        lengths = common_attn_metadata.seq_lens
        if self.kv_cache_spec.non_causal:
            lengths = lengths.max().expand_as(lengths)
        return FullMetadata(common_attn_metadata.block_table_tensor, lengths, self.kv_cache_spec.num_kv_heads)


CAUSAL_FULL: Final = BackendAdapter("causal_full", CausalFullBuilder, FullImpl)


def run() -> object:
    group, _ = place(CAUSAL_FULL, WINDOW_SPEC)
    return Runner([group]).build(two_requests())
