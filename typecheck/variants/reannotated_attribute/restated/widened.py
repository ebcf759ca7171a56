"""A builder annotates ``kv_cache_spec`` once more in its class body.

Right: with the type that the attribute has already.
"""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.attention import FullBuilder
from typecheck.designs.widened.core import AttentionBackend
from typecheck.designs.widened.layers import Attention, place


class DoubledHeadsBuilder(FullBuilder):
    """Says for its readers what the spec is."""

    kv_cache_spec: AttentionSpec

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        made = super().build(common_prefix_len, common_attn_metadata, fast_build)
        return replace(made, num_kv_heads=2 * self.kv_cache_spec.num_kv_heads)


class DoubledHeadsBackend(AttentionBackend):
    """Full attention."""

    @staticmethod
    @override
    def get_name() -> str:
        return "doubled_heads"

    @staticmethod
    @override
    def get_builder_cls() -> type[DoubledHeadsBuilder]:
        return DoubledHeadsBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[FullImpl]:
        return FullImpl


def run() -> object:
    group = place(DoubledHeadsBackend, FULL_SPEC)
    step = group.build(two_requests())
    return Attention(DoubledHeadsBackend.get_name(), DoubledHeadsBackend).forward(step).sum().item()
