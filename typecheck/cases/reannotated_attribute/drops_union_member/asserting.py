"""A planning builder forgets the wrapper spec, which its base takes too, and states the single spec only.

At run time: AttributeError: 'UniformTypeKVCacheSpecs' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.asserting.attention import FlashInferBackend, FlashInferBuilder
from typecheck.designs.asserting.layers import place
from typecheck.designs.shared.batch import UNIFORM_SPEC, two_requests
from typecheck.designs.shared.metadata import FlashInferMetadata


class SingleSpecPlanBuilder(FlashInferBuilder):
    """A plan for layers that are alike."""

    kv_cache_spec: AttentionSpec  # E

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashInferMetadata:
        starts = common_attn_metadata.query_start_loc
        return FlashInferMetadata(starts, (self.kv_cache_spec.num_kv_heads,) * len(self.layer_names))


class SingleSpecPlanBackend(FlashInferBackend):
    """A plan for layers that are alike."""

    @staticmethod
    @override
    def get_builder_cls() -> type[SingleSpecPlanBuilder]:
        return SingleSpecPlanBuilder


def run() -> object:
    return place(SingleSpecPlanBackend, UNIFORM_SPEC).build(two_requests())
