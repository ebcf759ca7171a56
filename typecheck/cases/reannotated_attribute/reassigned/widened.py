"""A latent builder replaces its spec by one for the kernel's block size, which it makes as a plain full spec.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'cache_dtype_str'
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import FullAttentionSpec, MLAAttentionSpec
from typecheck.designs.shared.batch import MLA_SPEC, two_requests
from typecheck.designs.shared.metadata import MLAMetadata
from typecheck.designs.widened.attention import MLABackend, MLABuilder
from typecheck.designs.widened.layers import place


class PaddedMLABuilder(MLABuilder):
    """Latent attention whose kernel works on blocks of 8 tokens."""

    def __init__(
        self, kv_cache_spec: MLAAttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        size = kv_cache_spec.head_size
        self.kv_cache_spec = FullAttentionSpec(block_size=8, num_kv_heads=1, head_size=size, dtype=torch.float32)  # E

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLAMetadata:
        plain = self.kv_cache_spec.cache_dtype_str is None
        return MLAMetadata(common_attn_metadata.block_table_tensor, self.latent_size() if plain else 0)


class PaddedMLABackend(MLABackend):
    """Latent attention, padded."""

    @staticmethod
    @override
    def get_builder_cls() -> type[PaddedMLABuilder]:
        return PaddedMLABuilder


def run() -> object:
    return place(PaddedMLABackend, MLA_SPEC).build(two_requests())
