"""A plug-in checks that it has an attention spec, and takes that to have a window; cross attention has none.

At run time: AttributeError: 'CrossAttentionSpec' object has no attribute 'sliding_window'
"""

from __future__ import annotations

from typing import Final

import torch
from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, CrossAttentionSpec
from typecheck.designs.shared.batch import two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.runner import Runner

CROSS_SPEC: Final = CrossAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=torch.float32)


class FlexBuilder(AttentionMetadataBuilder[FullMetadata]):
    """Out of tree: attention with a mask that is compiled."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        spec, lengths = self.kv_cache_spec, common_attn_metadata.seq_lens
        if not isinstance(spec, AttentionSpec):
            return FullMetadata(common_attn_metadata.block_table_tensor, lengths, 1)
        lengths = lengths.clamp(max=spec.sliding_window)  # E
        return FullMetadata(common_attn_metadata.block_table_tensor, lengths, spec.num_kv_heads)


class FlexBackend(AttentionBackend):
    """Attention with a mask that is compiled."""

    @staticmethod
    @override
    def get_name() -> str:
        return "flex"

    @staticmethod
    @override
    def get_builder_cls() -> type[FlexBuilder]:
        return FlexBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[FullImpl]:
        return FullImpl


def run() -> object:
    return Runner([place(FlexBackend, CROSS_SPEC)]).build(two_requests())
