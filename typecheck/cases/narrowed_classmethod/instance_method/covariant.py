"""The hook is overridden by a method of the instance, since it looks at the builder's layers; it is asked of the class.

At run time: TypeError: missing 1 required positional argument: 'kv_cache_spec'
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.covariant.attention import FullBuilder
from typecheck.designs.covariant.core import AttentionCGSupport, BackendAdapter
from typecheck.designs.covariant.layers import place
from typecheck.designs.shared.batch import FULL_SPEC
from typecheck.designs.shared.kernels import FullImpl


class PlannedBuilder(FullBuilder):
    """Plans that are made per builder: the hook looks at what the builder holds."""

    @override
    def get_cudagraph_support(self, config: EngineConfig, kv_cache_spec: KVCacheSpec) -> AttentionCGSupport:  # E
        if len(self.layer_names) > config.num_speculative_tokens + kv_cache_spec.block_size:
            return AttentionCGSupport.NEVER
        return AttentionCGSupport.UNIFORM_BATCH


PLANNED: Final = BackendAdapter("planned", PlannedBuilder, FullImpl)


def run() -> object:
    group, _ = place(PLANNED, FULL_SPEC)
    return group.cudagraph_support()
