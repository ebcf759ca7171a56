"""The hook of a builder over states leaves its spec unannotated, and reads heads from it.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.config import EngineConfig
from typecheck.designs.covariant.core import AttentionCGSupport, BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.covariant.state import LinearBuilder
from typecheck.designs.shared.batch import STATE_SPEC
from typecheck.designs.shared.kernels import LinearImpl


class ShortConvBuilder(LinearBuilder):
    """A short convolution's state."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec) -> AttentionCGSupport:
        if kv_cache_spec.num_kv_heads > 1:  # E
            return AttentionCGSupport.ALWAYS
        return AttentionCGSupport.UNIFORM_BATCH


SHORT_CONV: Final = BackendAdapter("short_conv", ShortConvBuilder, LinearImpl)


def run() -> object:
    group, _ = place(SHORT_CONV, STATE_SPEC)
    return group.cudagraph_support()
