"""A builder for any keys and values narrows its hook to the full spec, for one field; it serves windowed layers too.

At run time: AttributeError: 'SlidingWindowSpec' object has no attribute 'non_causal'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import FullAttentionSpec
from typecheck.designs.asserting.attention import FullBackend, FullBuilder
from typecheck.designs.asserting.core import AttentionCGSupport
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.runner import Runner
from typecheck.designs.shared.batch import FULL_SPEC, WINDOW_SPEC


class MaskedBuilder(FullBuilder):
    """Full attention with a mask."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: FullAttentionSpec) -> AttentionCGSupport:  # E
        if kv_cache_spec.non_causal:
            return AttentionCGSupport.NEVER
        return AttentionCGSupport.ALWAYS


class MaskedBackend(FullBackend):
    """Full attention with a mask."""

    @staticmethod
    @override
    def get_builder_cls() -> type[MaskedBuilder]:
        return MaskedBuilder


def run() -> object:
    return Runner([place(MaskedBackend, FULL_SPEC), place(MaskedBackend, WINDOW_SPEC)]).cudagraph_support()
