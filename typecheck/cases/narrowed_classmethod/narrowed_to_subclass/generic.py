"""A builder for any keys and values narrows its hook to the full spec, for one field; it serves windowed layers too.

At run time: AttributeError: 'SlidingWindowSpec' object has no attribute 'non_causal'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import FullAttentionSpec
from typecheck.designs.generic.attention import FullBuilder
from typecheck.designs.generic.core import AttentionCGSupport, BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, WINDOW_SPEC
from typecheck.designs.shared.kernels import FullImpl


class MaskedBuilder(FullBuilder):
    """Full attention with a mask."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: FullAttentionSpec) -> AttentionCGSupport:  # E
        if kv_cache_spec.non_causal:
            return AttentionCGSupport.NEVER
        return AttentionCGSupport.ALWAYS


MASKED: Final = BackendAdapter("masked", MaskedBuilder, FullImpl)


def run() -> object:
    full, _ = place(MASKED, FULL_SPEC)
    window, _ = place(MASKED, WINDOW_SPEC)
    return Runner([full, window]).cudagraph_support()
