"""A builder for any keys and values reads the window of its spec, which cross attention does not have.

At run time: AttributeError: 'CrossAttentionSpec' object has no attribute 'sliding_window'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, CrossAttentionSpec
from typecheck.designs.shared.batch import CONFIG, CPU, two_requests
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.core import AttentionMetadataBuilder

CROSS_SPEC: Final = CrossAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=torch.float32)


class CpuBuilder(AttentionMetadataBuilder[FullMetadata]):
    """Full attention on a CPU; what is before the window is not counted."""

    kv_cache_spec: AttentionSpec  # pyrefly: ignore[bad-override-mutable-attribute]

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        seen = common_attn_metadata.seq_lens.clamp(max=self.kv_cache_spec.sliding_window)  # E
        return FullMetadata(common_attn_metadata.block_table_tensor, seen, self.kv_cache_spec.num_kv_heads)


def run() -> object:
    return CpuBuilder(CROSS_SPEC, ["decoder.cross"], CONFIG, CPU).build(0, two_requests())
