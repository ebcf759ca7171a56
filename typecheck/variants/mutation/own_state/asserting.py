"""A builder works with another block size than it was given, and changes an attribute at every batch.

Right: it copies the spec, and the attribute is its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.asserting.core import AttentionBackend
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.state import Mamba2Builder
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.kernels import Mamba2Impl
from typecheck.designs.shared.metadata import Mamba2Metadata


class ReblockedBuilder(Mamba2Builder):
    """Works on blocks of its own size, and counts its batches."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec.copy_with_new_block_size(1), layer_names, config, device)
        self.num_batches: int = 0

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> Mamba2Metadata:
        self.num_batches += 1
        return super().build(common_prefix_len, common_attn_metadata, fast_build)


class ReblockedBackend(AttentionBackend):
    """A scan."""

    @staticmethod
    @override
    def get_name() -> str:
        return "reblocked"

    @staticmethod
    @override
    def get_builder_cls() -> type[ReblockedBuilder]:
        return ReblockedBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[Mamba2Impl]:
        return Mamba2Impl


def run() -> object:
    group = place(ReblockedBackend, STATE_SPEC)
    builder = group.builder
    assert isinstance(builder, ReblockedBuilder)
    states = [builder.build(0, two_requests()).num_states for _ in range(2)]
    return states, builder.num_batches, builder.kv_cache_spec.block_size, STATE_SPEC.block_size
