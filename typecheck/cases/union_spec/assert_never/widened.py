"""A builder's author means to handle every spec that it takes, closes the match with `assert_never`, and forgets the
wrapper of several specs.

At run time: AssertionError: Expected code to be unreachable
"""

from __future__ import annotations

from typing_extensions import assert_never, override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.shared.batch import CONFIG, CPU, UNIFORM_SPEC, two_requests
from typecheck.designs.shared.metadata import FlashInferMetadata
from typecheck.designs.widened.attention import FlashInferBackend, FlashInferBuilder
from typecheck.designs.widened.core import AttentionGroup


class MatchingBuilder(FlashInferBuilder):
    """Plans by the kind of its spec."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashInferMetadata:
        spec = self.kv_cache_spec
        match spec:
            case AttentionSpec():
                return FlashInferMetadata(common_attn_metadata.query_start_loc, (spec.num_kv_heads,))
            case _:
                assert_never(spec)  # E


class MatchingBackend(FlashInferBackend):
    """Attention from a plan."""

    @staticmethod
    @override
    def get_builder_cls() -> type[MatchingBuilder]:
        return MatchingBuilder


def run() -> object:
    group = AttentionGroup(MatchingBackend, UNIFORM_SPEC, ["wide", "narrow"], CONFIG, CPU)
    return group.build(two_requests())
