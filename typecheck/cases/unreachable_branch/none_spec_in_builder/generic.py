"""The builder treats encoder-only layers where its spec is None; they come with an EncoderOnlyAttentionSpec.

At run time: wrong: 2; right: 0
"""

from __future__ import annotations

import torch
from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import EncoderOnlyAttentionSpec
from typecheck.designs.generic.attention import FullBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, two_requests
from typecheck.designs.shared.metadata import FullMetadata


class EncoderBuilder(FullBuilder):
    """Full attention that may run in an encoder."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        if self.kv_cache_spec is None:  # E
            return FullMetadata(common_attn_metadata.slot_mapping, common_attn_metadata.seq_lens, 0)  # E?
        return super().build(common_prefix_len, common_attn_metadata, fast_build)


def run() -> object:
    spec = EncoderOnlyAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=torch.float32)
    return EncoderBuilder(spec, ["encoder"], CONFIG, CPU).build(0, two_requests()).num_kv_heads
