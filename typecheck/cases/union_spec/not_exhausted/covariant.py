"""A builder that takes one attention spec or a wrapper of several reads the heads as if it only ever got the one.

At run time: AttributeError: 'UniformTypeKVCacheSpecs' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from typecheck.designs.covariant.attention import FlashInferBuilder
from typecheck.designs.covariant.core import BackendAdapter, Step
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, UNIFORM_SPEC, two_requests
from typecheck.designs.shared.kernels import FlashInferImpl
from typecheck.designs.shared.metadata import FlashInferMetadata


class OnePlanBuilder(FlashInferBuilder):
    """Plans once for all layers."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashInferMetadata:
        return FlashInferMetadata(common_attn_metadata.query_start_loc, (self.kv_cache_spec.num_kv_heads,))  # E


ONE_PLAN: Final = BackendAdapter("one_plan", OnePlanBuilder, FlashInferImpl)


def run() -> object:
    layers = [ONE_PLAN.layer(name, HEADS) for name in ("wide", "narrow")]
    group = ONE_PLAN.bind(UNIFORM_SPEC, layers, CONFIG, CPU)
    step = Step()
    group.build(two_requests(), step)
    return group.metadata(step)
