"""A dictionary of subclasses of the full builder goes where a mapping of builders of its types is asked for.

Right: the mapping is only read.
"""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from genericbuilders.config import EngineConfig
from genericbuilders.specs import KVCacheSpec
from typecheck.designs.shared.batch import CONFIG, FULL_SPEC
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.attention import FullBuilder
from typecheck.designs.widened.core import AttentionCGSupport, AttentionMetadataBuilder


def supports(builders: Mapping[str, type[AttentionMetadataBuilder[FullMetadata]]]) -> dict[str, str]:
    return {name: builder.get_cudagraph_support(CONFIG, FULL_SPEC).name for name, builder in builders.items()}


class NeverCapturedBuilder(FullBuilder):
    """Full attention that no graph is captured for."""

    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: KVCacheSpec) -> AttentionCGSupport:
        del config, kv_cache_spec
        return AttentionCGSupport.NEVER


def run() -> object:
    builders: dict[str, type[FullBuilder]] = {"full": FullBuilder, "never": NeverCapturedBuilder}
    return supports(builders)
