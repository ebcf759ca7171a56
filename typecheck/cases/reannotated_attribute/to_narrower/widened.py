"""A builder for any keys and values narrows its spec to the full one, to read one field; windowed layers use it too.

At run time: AttributeError: 'SlidingWindowSpec' object has no attribute 'non_causal'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import FullAttentionSpec
from typecheck.designs.shared.batch import WINDOW_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.attention import FullBackend, FullBuilder
from typecheck.designs.widened.layers import place


class CausalFullBuilder(FullBuilder):
    """Full attention that tells causal layers from others."""

    kv_cache_spec: FullAttentionSpec  # pyrefly: ignore[bad-override-mutable-attribute]  # E

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        lengths = common_attn_metadata.seq_lens
        if self.kv_cache_spec.non_causal:
            lengths = lengths.max().expand_as(lengths)
        return FullMetadata(common_attn_metadata.block_table_tensor, lengths, self.kv_cache_spec.num_kv_heads)


class CausalFullBackend(FullBackend):
    """Full attention, causal or not."""

    @staticmethod
    @override
    def get_builder_cls() -> type[CausalFullBuilder]:
        return CausalFullBuilder


def run() -> object:
    return place(CausalFullBackend, WINDOW_SPEC).build(two_requests())
