"""A planning builder reads the heads of every layer that is wrapped, and a wrapper may hold layers of any kind.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import UniformTypeKVCacheSpecs
from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import FlashInferMetadata
from typecheck.designs.widened.attention import FlashInferBackend, FlashInferBuilder
from typecheck.designs.widened.core import AttentionGroup


class EachLayerBuilder(FlashInferBuilder):
    """Attention from a plan, layer by layer."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashInferMetadata:
        spec, starts = self.kv_cache_spec, common_attn_metadata.query_start_loc
        if isinstance(spec, UniformTypeKVCacheSpecs):
            return FlashInferMetadata(starts, tuple(inner.num_kv_heads for inner in spec.kv_cache_specs.values()))  # E
        return FlashInferMetadata(starts, (spec.num_kv_heads,))


class EachLayerBackend(FlashInferBackend):
    """Attention from a plan, layer by layer."""

    @staticmethod
    @override
    def get_builder_cls() -> type[EachLayerBuilder]:
        return EachLayerBuilder


def run() -> object:
    spec = UniformTypeKVCacheSpecs(4, {"mixer": STATE_SPEC})
    return AttentionGroup(EachLayerBackend, spec, ["mixer"], CONFIG, CPU).build(two_requests())
