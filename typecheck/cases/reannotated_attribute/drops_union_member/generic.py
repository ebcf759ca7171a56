"""A planning builder forgets the wrapper spec, which its base takes too, and states the single spec only.

At run time: AttributeError: 'UniformTypeKVCacheSpecs' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.generic.attention import FlashInferBuilder
from typecheck.designs.generic.core import BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.shared.batch import UNIFORM_SPEC, two_requests
from typecheck.designs.shared.kernels import FlashInferImpl
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


SINGLE_SPEC_PLAN: Final = BackendAdapter("single_spec_plan", SingleSpecPlanBuilder, FlashInferImpl)


def run() -> object:
    group, _ = place(SINGLE_SPEC_PLAN, UNIFORM_SPEC)
    return Runner([group]).build(two_requests())
