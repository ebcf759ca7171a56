"""A latent builder, written on the base itself, takes its spec to be narrower than the base says.

Right: it is only ever given a latent layer's spec.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import MLAAttentionSpec
from typecheck.designs.covariant.core import AttentionMetadataBuilder, BackendAdapter, Step
from typecheck.designs.covariant.layers import Attention, place
from typecheck.designs.shared.batch import MLA_SPEC, two_requests
from typecheck.designs.shared.kernels import MLAImpl
from typecheck.designs.shared.metadata import MLAMetadata


class PackedLatentBuilder(AttentionMetadataBuilder[MLAMetadata, MLAAttentionSpec]):
    """Reads the alignment of a latent layer's pages."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLAMetadata:
        return MLAMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.alignment or 1)


PACKED_LATENT: Final = BackendAdapter("packed_latent", PackedLatentBuilder, MLAImpl)
ALIGNED_SPEC: Final = replace(MLA_SPEC, alignment=64)


def run() -> object:
    group, layer = place(PACKED_LATENT, ALIGNED_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return Attention(layer).forward(step).sum().item()
