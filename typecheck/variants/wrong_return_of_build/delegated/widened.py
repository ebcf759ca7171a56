"""A builder wraps another one, and returns what that one makes from a changed batch.

Right: both make the same metadata for the same spec.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.shared.batch import WINDOW_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.attention import FullBuilder
from typecheck.designs.widened.core import AttentionBackend, AttentionMetadataBuilder
from typecheck.designs.widened.layers import Attention, place


class LastBlockBuilder(AttentionMetadataBuilder[FullMetadata]):
    """Attends over the last block of each request only."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.inner: FullBuilder = FullBuilder(kv_cache_spec, layer_names, config, device)

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        last = common_attn_metadata.block_table_tensor[:, -1:]
        local = common_attn_metadata.for_group(last, common_attn_metadata.slot_mapping)
        return self.inner.build(common_prefix_len, local, fast_build)


class LastBlockBackend(AttentionBackend):
    """Local attention."""

    @staticmethod
    @override
    def get_name() -> str:
        return "last_block"

    @staticmethod
    @override
    def get_builder_cls() -> type[LastBlockBuilder]:
        return LastBlockBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[FullImpl]:
        return FullImpl


def run() -> object:
    group = place(LastBlockBackend, WINDOW_SPEC)
    step = group.build(two_requests())
    return Attention(LastBlockBackend.get_name(), LastBlockBackend).forward(step).sum().item()
