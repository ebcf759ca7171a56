"""The graph-support hook of a subclass takes another type than the base's: any spec, or none.

Right: it takes more than the base's, not less.
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import AttentionSpec, KVCacheSpec
from typecheck.designs.shared.batch import CONFIG, FULL_SPEC
from typecheck.designs.shared.kernels import FullImpl
from typecheck.designs.widened.attention import FullBuilder
from typecheck.designs.widened.core import AttentionBackend, AttentionCGSupport
from typecheck.designs.widened.layers import place


class OptionalSpecBuilder(FullBuilder):
    """Can be asked before the layer's spec is known."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: KVCacheSpec | None) -> AttentionCGSupport:
        if isinstance(kv_cache_spec, AttentionSpec) and kv_cache_spec.num_kv_heads > 1:
            return AttentionCGSupport.ALWAYS
        return AttentionCGSupport.NEVER


class OptionalSpecBackend(AttentionBackend):
    """Full attention."""

    @staticmethod
    @override
    def get_name() -> str:
        return "optional_spec"

    @staticmethod
    @override
    def get_builder_cls() -> type[OptionalSpecBuilder]:
        return OptionalSpecBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[FullImpl]:
        return FullImpl


def run() -> object:
    group = place(OptionalSpecBackend, FULL_SPEC)
    return group.cudagraph_support().name, OptionalSpecBuilder.get_cudagraph_support(CONFIG, None).name
