"""A builder over states brings the graph-support hook of an attention back end, which takes the sibling spec.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import AttentionSpec
from typecheck.designs.asserting.core import AttentionCGSupport
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.state import GDNBackend, GDNBuilder
from typecheck.designs.shared.batch import STATE_SPEC


class KimiDeltaBuilder(GDNBuilder):
    """The gated delta rule with a hook copied from an attention back end."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: AttentionSpec) -> AttentionCGSupport:  # E
        if kv_cache_spec.num_kv_heads > 1:
            return AttentionCGSupport.ALWAYS
        return AttentionCGSupport.UNIFORM_BATCH


class KimiDeltaBackend(GDNBackend):
    """The gated delta rule."""

    @staticmethod
    @override
    def get_builder_cls() -> type[KimiDeltaBuilder]:
        return KimiDeltaBuilder


def run() -> object:
    return place(KimiDeltaBackend, STATE_SPEC).cudagraph_support()
