"""A planning builder adds the draft model's layer to the wrapper of specs that all of the model's groups share.

At run time: TypeError: 'FrozenMapping' object does not support item assignment
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import UniformTypeKVCacheSpecs
from typecheck.designs.asserting.attention import FlashInferBackend, FlashInferBuilder
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, UNIFORM_SPEC, two_requests
from typecheck.designs.shared.metadata import FlashInferMetadata


class WithDraftBuilder(FlashInferBuilder):
    """Attention from a plan that covers the draft model's layer, too."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashInferMetadata:
        spec = self.kv_cache_spec
        if isinstance(spec, UniformTypeKVCacheSpecs):
            spec.kv_cache_specs["draft"] = FULL_SPEC  # E
        return super().build(common_prefix_len, common_attn_metadata, fast_build)


class WithDraftBackend(FlashInferBackend):
    """Attention from a plan, with a draft model."""

    @staticmethod
    @override
    def get_builder_cls() -> type[WithDraftBuilder]:
        return WithDraftBuilder


def run() -> object:
    return AttentionGroup(WithDraftBackend, UNIFORM_SPEC, ["wide", "narrow"], CONFIG, CPU).build(two_requests())
