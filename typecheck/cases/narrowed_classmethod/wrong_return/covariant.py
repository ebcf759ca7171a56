"""The hook answers yes or no, as the engine of another project asks, and not with a kind of support.

At run time: AttributeError: 'bool' object has no attribute 'name'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.covariant.attention import MLABuilder
from typecheck.designs.covariant.core import BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.shared.batch import MLA_SPEC
from typecheck.designs.shared.kernels import MLAImpl


class EagerMLABuilder(MLABuilder):
    """Latent attention without graphs for wide latents."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: KVCacheSpec) -> bool:  # E
        return kv_cache_spec.page_size_bytes <= 1024


EAGER_MLA: Final = BackendAdapter("eager_mla", EagerMLABuilder, MLAImpl)


def run() -> object:
    group, _ = place(EAGER_MLA, MLA_SPEC)
    return group.cudagraph_support().name
