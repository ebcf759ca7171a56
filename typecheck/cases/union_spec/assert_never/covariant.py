"""A builder's author means to handle every spec that it takes, closes the match with `assert_never`, and forgets the
wrapper of several specs.

At run time: AssertionError: Expected code to be unreachable
"""

from __future__ import annotations

from typing import Final

from typing_extensions import assert_never, override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec
from typecheck.designs.covariant.attention import FlashInferBuilder
from typecheck.designs.covariant.core import BackendAdapter, Step
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, UNIFORM_SPEC, two_requests
from typecheck.designs.shared.kernels import FlashInferImpl
from typecheck.designs.shared.metadata import FlashInferMetadata


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


MATCHING: Final = BackendAdapter("matching", MatchingBuilder, FlashInferImpl)


def run() -> object:
    layers = [MATCHING.layer(name, HEADS) for name in ("wide", "narrow")]
    group = MATCHING.bind(UNIFORM_SPEC, layers, CONFIG, CPU)
    step = Step()
    group.build(two_requests(), step)
    return group.metadata(step)
