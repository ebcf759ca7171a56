"""The hook is overridden by a method of the instance, since it looks at the builder's layers; it is asked of the class.

At run time: TypeError: missing 1 required positional argument: 'kv_cache_spec'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import AttentionSpec
from typecheck.designs.asserting.attention import FullBackend, FullBuilder
from typecheck.designs.asserting.core import AttentionCGSupport
from typecheck.designs.asserting.layers import place
from typecheck.designs.shared.batch import FULL_SPEC


class PlannedBuilder(FullBuilder):
    """Plans that are made per builder: the hook looks at what the builder holds."""

    @override
    def get_cudagraph_support(self, config: EngineConfig, kv_cache_spec: AttentionSpec) -> AttentionCGSupport:  # E
        if len(self.layer_names) > config.num_speculative_tokens + kv_cache_spec.block_size:
            return AttentionCGSupport.NEVER
        return AttentionCGSupport.UNIFORM_BATCH


class PlannedBackend(FullBackend):
    """Plans that are made per builder."""

    @staticmethod
    @override
    def get_builder_cls() -> type[PlannedBuilder]:
        return PlannedBuilder


def run() -> object:
    return place(PlannedBackend, FULL_SPEC).cudagraph_support()
