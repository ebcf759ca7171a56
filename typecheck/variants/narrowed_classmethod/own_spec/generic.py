"""The graph-support hook of a latent builder reads ``alignment``, which only a latent layer's spec has.

Right: the hook is asked about that builder's own layers, and every one of them has it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import MLAAttentionSpec
from typecheck.designs.generic.attention import MLABuilder
from typecheck.designs.generic.core import AttentionCGSupport, BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.shared.batch import MLA_SPEC
from typecheck.designs.shared.kernels import MLAImpl


class AlignedLatentBuilder(MLABuilder):
    """Is captured only where pages are not aligned."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: MLAAttentionSpec) -> AttentionCGSupport:
        return AttentionCGSupport.UNIFORM_BATCH if kv_cache_spec.alignment is None else AttentionCGSupport.NEVER


ALIGNED_LATENT: Final = BackendAdapter("aligned_latent", AlignedLatentBuilder, MLAImpl)


def run() -> object:
    specs = (MLA_SPEC, replace(MLA_SPEC, alignment=64))
    return [place(ALIGNED_LATENT, spec)[0].cudagraph_support().name for spec in specs]
