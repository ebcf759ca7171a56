"""A builder over states brings the graph-support hook of an attention back end, which takes the sibling spec.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import AttentionSpec
from typecheck.designs.generic.core import AttentionCGSupport, BackendAdapter
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.state import GDNBuilder
from typecheck.designs.shared.batch import STATE_SPEC
from typecheck.designs.shared.kernels import GDNImpl


class KimiDeltaBuilder(GDNBuilder):
    """The gated delta rule with a hook copied from an attention back end."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: AttentionSpec) -> AttentionCGSupport:  # E
        if kv_cache_spec.num_kv_heads > 1:
            return AttentionCGSupport.ALWAYS
        return AttentionCGSupport.UNIFORM_BATCH


KIMI_DELTA: Final = BackendAdapter("kimi_delta", KimiDeltaBuilder, GDNImpl)


def run() -> object:
    group, _ = place(KIMI_DELTA, STATE_SPEC)
    return group.cudagraph_support()
