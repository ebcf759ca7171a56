"""A builder annotates ``kv_cache_spec`` once more in its class body.

Right: with the type that the attribute has already.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.generic.attention import FullBuilder
from typecheck.designs.generic.core import BackendAdapter, Step
from typecheck.designs.generic.layers import Attention, place
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata


class DoubledHeadsBuilder(FullBuilder):
    """Says for its readers what the spec is."""

    kv_cache_spec: AttentionSpec

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        made = super().build(common_prefix_len, common_attn_metadata, fast_build)
        return replace(made, num_kv_heads=2 * self.kv_cache_spec.num_kv_heads)


DOUBLED_HEADS: Final = BackendAdapter("doubled_heads", DoubledHeadsBuilder, FullImpl)


def run() -> object:
    group, layer = place(DOUBLED_HEADS, FULL_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
