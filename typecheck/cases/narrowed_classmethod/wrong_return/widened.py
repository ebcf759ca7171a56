"""The hook answers yes or no, as the engine of another project asks, and not with a kind of support.

At run time: AttributeError: 'bool' object has no attribute 'name'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.shared.batch import MLA_SPEC
from typecheck.designs.widened.attention import MLABackend, MLABuilder
from typecheck.designs.widened.layers import place


class EagerMLABuilder(MLABuilder):
    """Latent attention without graphs for wide latents."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: KVCacheSpec) -> bool:  # E
        return kv_cache_spec.page_size_bytes <= 1024


class EagerMLABackend(MLABackend):
    """Latent attention."""

    @staticmethod
    @override
    def get_builder_cls() -> type[EagerMLABuilder]:
        return EagerMLABuilder


def run() -> object:
    return place(EagerMLABackend, MLA_SPEC).cudagraph_support().name
