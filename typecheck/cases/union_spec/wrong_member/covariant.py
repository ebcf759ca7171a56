"""In the branch of a single attention spec, a planning builder counts the layers of a wrapper.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'kv_cache_specs'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import UniformTypeKVCacheSpecs
from typecheck.designs.covariant.attention import FlashInferBuilder, heads_of
from typecheck.designs.covariant.core import BackendAdapter, Step
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, two_requests
from typecheck.designs.shared.kernels import FlashInferImpl
from typecheck.designs.shared.metadata import FlashInferMetadata


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


SWAPPED: Final = BackendAdapter("swapped", SwappedBuilder, FlashInferImpl)


def run() -> object:
    group = SWAPPED.bind(FULL_SPEC, [SWAPPED.layer("attn", HEADS)], CONFIG, CPU)
    step = Step()
    group.build(two_requests(), step)
    return group.metadata(step)
