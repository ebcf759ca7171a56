"""A planning builder branches over its spec and ends in `assert_never`.

Right: every member of the union has its branch.
"""

from __future__ import annotations

from typing import Final, assert_never

from typing_extensions import override

from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, UniformTypeKVCacheSpecs
from typecheck.designs.covariant.attention import FlashInferBuilder
from typecheck.designs.covariant.core import BackendAdapter, Step
from typecheck.designs.covariant.layers import Attention, place
from typecheck.designs.shared.batch import FULL_SPEC, UNIFORM_SPEC, two_requests
from typecheck.designs.shared.kernels import FlashInferImpl
from typecheck.designs.shared.metadata import FlashInferMetadata


def layers_of(spec: AttentionSpec | UniformTypeKVCacheSpecs) -> int:
    match spec:
        case AttentionSpec():
            return 1
        case UniformTypeKVCacheSpecs():
            return len(spec.kv_cache_specs)
        case _:
            assert_never(spec)


class LayersBuilder(FlashInferBuilder):
    """Plans the same heads for every layer."""

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> FlashInferMetadata:
        heads = (2,) * layers_of(self.kv_cache_spec)
        return FlashInferMetadata(common_attn_metadata.query_start_loc, heads)


LAYERS: Final = BackendAdapter("layers", LayersBuilder, FlashInferImpl)


def run() -> object:
    outputs: list[float] = []
    for spec in (FULL_SPEC, UNIFORM_SPEC):
        group, layer = place(LAYERS, spec)
        step = Step()
        group.build(two_requests(), step)
        outputs.append(Attention(layer).forward(step).sum().item())
    return outputs
