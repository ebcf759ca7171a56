"""The graph-support hook of a subclass takes another type than the base's: any spec, or none.

Right: it takes more than the base's, not less.
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import AttentionSpec, KVCacheSpec
from typecheck.designs.generic.attention import FullBuilder
from typecheck.designs.generic.core import AttentionCGSupport, BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.shared.batch import CONFIG, FULL_SPEC
from typecheck.designs.shared.kernels import FullImpl


class OptionalSpecBuilder(FullBuilder):
    """Can be asked before the layer's spec is known."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: KVCacheSpec | None) -> AttentionCGSupport:
        if isinstance(kv_cache_spec, AttentionSpec) and kv_cache_spec.num_kv_heads > 1:
            return AttentionCGSupport.ALWAYS
        return AttentionCGSupport.NEVER


OPTIONAL_SPEC: Final = BackendAdapter("optional_spec", OptionalSpecBuilder, FullImpl)


def run() -> object:
    group, _ = place(OPTIONAL_SPEC, FULL_SPEC)
    return group.cudagraph_support().name, OptionalSpecBuilder.get_cudagraph_support(CONFIG, None).name
