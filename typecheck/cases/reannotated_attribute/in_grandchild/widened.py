"""Two classes below the one that takes a state's spec, a builder states that it has an attention spec.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import GDNMetadata
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.state import GDNBackend, GDNBuilder


class HeadwiseGDNBuilder(GDNBuilder):
    """The gated delta rule, one state for each head."""

    kv_cache_spec: AttentionSpec  # E

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> GDNMetadata:
        heads = self.kv_cache_spec.num_kv_heads
        states = common_attn_metadata.block_table_tensor[:, :1].repeat(1, heads)
        return GDNMetadata(states, self.config.num_speculative_tokens)


class HeadwiseGDNBackend(GDNBackend):
    """The gated delta rule."""

    @staticmethod
    @override
    def get_builder_cls() -> type[HeadwiseGDNBuilder]:
        return HeadwiseGDNBuilder


def run() -> object:
    return place(HeadwiseGDNBackend, STATE_SPEC).build(two_requests())
