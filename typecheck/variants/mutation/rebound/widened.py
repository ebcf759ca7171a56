"""A builder assigns its ``kv_cache_spec`` a second time.

Right: a new spec of the same type; the one that it was given stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.shared.batch import FULL_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.attention import FullBuilder
from typecheck.designs.widened.core import AttentionBackend
from typecheck.designs.widened.layers import Attention, place


class SingleTokenBuilder(FullBuilder):
    """Works on blocks of one token."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        self.kv_cache_spec: AttentionSpec = kv_cache_spec.copy_with_new_block_size(1)

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        made = super().build(common_prefix_len, common_attn_metadata, fast_build)
        return replace(made, num_kv_heads=made.num_kv_heads * self.kv_cache_spec.block_size)


class SingleTokenBackend(AttentionBackend):
    """Full attention."""

    @staticmethod
    @override
    def get_name() -> str:
        return "single_token"

    @staticmethod
    @override
    def get_builder_cls() -> type[SingleTokenBuilder]:
        return SingleTokenBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[FullImpl]:
        return FullImpl


def run() -> object:
    group = place(SingleTokenBackend, FULL_SPEC)
    step = group.build(two_requests())
    return Attention("single_token", SingleTokenBackend).forward(step).sum().item(), FULL_SPEC.block_size
