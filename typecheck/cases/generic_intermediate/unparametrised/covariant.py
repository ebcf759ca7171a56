"""A latent builder does not tell the intermediate what it makes, and its caller reads heads from latent metadata.

At run time: AttributeError: 'MLAMetadata' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing_extensions import TypeVar, override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.covariant.attention import MLACommonMetadataBuilder
from typecheck.designs.covariant.core import AttentionMetadataBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, MLA_SPEC, two_requests
from typecheck.designs.shared.metadata import MLAMetadata

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)


class DenseMLABuilder(MLACommonMetadataBuilder):  # E
    """Latent attention without an indexer."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> MLAMetadata:
        return MLAMetadata(common_attn_metadata.block_table_tensor, self.latent_size())


def captured(builder: AttentionMetadataBuilder[M, S]) -> M:
    """What a graph is captured with."""
    return builder.build(0, two_requests())


def run() -> object:
    return captured(DenseMLABuilder(MLA_SPEC, ["attn"], CONFIG, CPU)).num_kv_heads
