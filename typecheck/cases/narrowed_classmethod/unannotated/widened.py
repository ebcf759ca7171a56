"""The hook of a builder over states leaves its spec unannotated, and reads heads from it.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.config import EngineConfig
from typecheck.designs.shared.batch import STATE_SPEC
from typecheck.designs.widened.core import AttentionCGSupport
from typecheck.designs.widened.layers import place
from typecheck.designs.widened.state import LinearBackend, LinearBuilder


class ShortConvBuilder(LinearBuilder):
    """A short convolution's state."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec) -> AttentionCGSupport:
        if kv_cache_spec.num_kv_heads > 1:  # E
            return AttentionCGSupport.ALWAYS
        return AttentionCGSupport.UNIFORM_BATCH


class ShortConvBackend(LinearBackend):
    """A short convolution's state."""

    @staticmethod
    @override
    def get_builder_cls() -> type[ShortConvBuilder]:
        return ShortConvBuilder


def run() -> object:
    return place(ShortConvBackend, STATE_SPEC).cudagraph_support()
