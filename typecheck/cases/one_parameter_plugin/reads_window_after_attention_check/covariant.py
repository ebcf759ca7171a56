"""A plug-in checks that it has an attention spec, and takes that to have a window; cross attention has none.

At run time: AttributeError: 'CrossAttentionSpec' object has no attribute 'sliding_window'
"""

from __future__ import annotations

from typing import Final

import torch
from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, CrossAttentionSpec
from typecheck.designs.covariant.core import AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.shared.batch import two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata

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


FLEX: Final = BackendAdapter("flex", FlexBuilder, FullImpl)


def run() -> object:
    first, _ = place(FLEX, CROSS_SPEC)
    return Runner([first]).build(two_requests())
