"""A builder derives from the full one and takes its spec to be narrower than that one says.

Right: it is only ever given a latent layer's spec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch
from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, MLAAttentionSpec
from typecheck.designs.covariant.attention import FullBuilder
from typecheck.designs.covariant.core import BackendAdapter, Step
from typecheck.designs.covariant.layers import Attention, place
from typecheck.designs.shared.batch import MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.shared.metadata import FullMetadata


class PackedLatentBuilder(FullBuilder):
    """Reads the alignment of a latent layer's pages."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, config, device)
        if not isinstance(kv_cache_spec, MLAAttentionSpec):
            raise TypeError(f"a latent layer's spec is needed, not a {type(kv_cache_spec).__name__}")
        self.alignment: int = kv_cache_spec.alignment or 1

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FullMetadata:
        made = super().build(common_prefix_len, common_attn_metadata, fast_build)
        return replace(made, num_kv_heads=self.alignment)


PACKED_LATENT: Final = BackendAdapter("packed_latent", PackedLatentBuilder, FullImpl)
ALIGNED_SPEC: Final = replace(MLA_SPEC, alignment=64)


def run() -> object:
    group, layer = place(PACKED_LATENT, ALIGNED_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
