"""In the branch of a single attention spec, a planning builder counts the layers of a wrapper.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'kv_cache_specs'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import UniformTypeKVCacheSpecs
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import FlashInferMetadata
from typecheck.designs.widened.attention import FlashInferBuilder, heads_of


class SwappedBuilder(FlashInferBuilder):
    """Plans a page for each layer."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashInferMetadata:
        spec = self.kv_cache_spec
        if isinstance(spec, UniformTypeKVCacheSpecs):
            return FlashInferMetadata(common_attn_metadata.query_start_loc, heads_of(spec))
        return FlashInferMetadata(common_attn_metadata.query_start_loc, (len(spec.kv_cache_specs),))  # E


def run() -> object:
    builder = SwappedBuilder(FULL_SPEC, ["attn"], CONFIG, CPU)
    return builder.build(0, two_requests())
