"""A builder that takes one attention spec or a wrapper of several reads the heads as if it only ever got the one.

At run time: AttributeError: 'UniformTypeKVCacheSpecs' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.shared.batch import CONFIG, CPU, UNIFORM_SPEC, two_requests
from typecheck.designs.shared.metadata import FlashInferMetadata
from typecheck.designs.widened.attention import FlashInferBackend, FlashInferBuilder
from typecheck.designs.widened.core import AttentionGroup


class OnePlanBuilder(FlashInferBuilder):
    """Plans once for all layers."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashInferMetadata:
        return FlashInferMetadata(common_attn_metadata.query_start_loc, (self.kv_cache_spec.num_kv_heads,))  # E


class OnePlanBackend(FlashInferBackend):
    """Attention from one plan."""

    @staticmethod
    @override
    def get_builder_cls() -> type[OnePlanBuilder]:
        return OnePlanBuilder


def run() -> object:
    group = AttentionGroup(OnePlanBackend, UNIFORM_SPEC, ["wide", "narrow"], CONFIG, CPU)
    return group.build(two_requests())
