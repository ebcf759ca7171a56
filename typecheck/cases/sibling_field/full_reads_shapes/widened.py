"""A builder for keys and values counts rows in the state's shapes, which only its neighbour's spec has.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.core import AttentionMetadataBuilder


class PackedBuilder(AttentionMetadataBuilder[FullMetadata]):
    """Full attention over rows that a state-space layer packs."""

    kv_cache_spec: AttentionSpec  # pyrefly: ignore[bad-override-mutable-attribute]

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        table = common_attn_metadata.block_table_tensor
        return FullMetadata(table, common_attn_metadata.seq_lens, self.kv_cache_spec.shapes[0][0])  # E


def run() -> object:
    return PackedBuilder(FULL_SPEC, ["attn"], CONFIG, CPU).build(0, two_requests())
