"""A planning builder may be given one spec or a wrapper of several, and forgets that the wrapper has no heads.

At run time: AttributeError: 'UniformTypeKVCacheSpecs' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.asserting.attention import FlashInferBackend, FlashInferBuilder, heads_of
from typecheck.designs.asserting.layers import place
from typecheck.designs.shared.batch import UNIFORM_SPEC, two_requests
from typecheck.designs.shared.metadata import FlashInferMetadata


class GroupedPlanBuilder(FlashInferBuilder):
    """A plan that repeats its rows for each key-value head."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashInferMetadata:
        starts = common_attn_metadata.query_start_loc.repeat(self.kv_cache_spec.num_kv_heads)  # E
        return FlashInferMetadata(starts, heads_of(self.kv_cache_spec))


class GroupedPlanBackend(FlashInferBackend):
    """Attention from that plan."""

    @staticmethod
    @override
    def get_builder_cls() -> type[GroupedPlanBuilder]:
        return GroupedPlanBuilder


def run() -> object:
    return place(GroupedPlanBackend, UNIFORM_SPEC).build(two_requests())
