"""The graph-support hook of a latent builder reads ``alignment``, which only a latent layer's spec has.

Right: the hook is asked about that builder's own layers, and every one of them has it.
"""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import KVCacheSpec, MLAAttentionSpec
from typecheck.designs.shared.batch import MLA_SPEC
from typecheck.designs.shared.kernels import MLAImpl
from typecheck.designs.widened.attention import MLABuilder
from typecheck.designs.widened.core import AttentionBackend, AttentionCGSupport
from typecheck.designs.widened.layers import place


class AlignedLatentBuilder(MLABuilder):
    """Is captured only where pages are not aligned."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: KVCacheSpec) -> AttentionCGSupport:
        if isinstance(kv_cache_spec, MLAAttentionSpec) and kv_cache_spec.alignment is None:
            return AttentionCGSupport.UNIFORM_BATCH
        return AttentionCGSupport.NEVER


class AlignedLatentBackend(AttentionBackend):
    """Latent attention."""

    @staticmethod
    @override
    def get_name() -> str:
        return "aligned_latent"

    @staticmethod
    @override
    def get_builder_cls() -> type[AlignedLatentBuilder]:
        return AlignedLatentBuilder

    @staticmethod
    @override
    def get_impl_cls() -> type[MLAImpl]:
        return MLAImpl


def run() -> object:
    specs = (MLA_SPEC, replace(MLA_SPEC, alignment=64))
    return [place(AlignedLatentBackend, spec).cudagraph_support().name for spec in specs]
