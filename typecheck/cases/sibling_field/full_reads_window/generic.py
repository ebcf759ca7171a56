"""A builder for any keys and values reads the window of its spec, which cross attention does not have.

At run time: AttributeError: 'CrossAttentionSpec' object has no attribute 'sliding_window'
"""

from __future__ import annotations

from typing import Final

import torch
from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, CrossAttentionSpec
from typecheck.designs.generic.core import AttentionMetadataBuilder, BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.shared.batch import two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata

CROSS_SPEC: Final = CrossAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=torch.float32)


class CpuBuilder(AttentionMetadataBuilder[FullMetadata, AttentionSpec]):
    """Full attention on a CPU; what is before the window is not counted."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        seen = common_attn_metadata.seq_lens.clamp(max=self.kv_cache_spec.sliding_window)  # E
        return FullMetadata(common_attn_metadata.block_table_tensor, seen, self.kv_cache_spec.num_kv_heads)


CPU_FULL: Final = BackendAdapter("cpu_full", CpuBuilder, FullImpl)


def run() -> object:
    group, _ = place(CPU_FULL, CROSS_SPEC)
    return Runner([group]).build(two_requests())
