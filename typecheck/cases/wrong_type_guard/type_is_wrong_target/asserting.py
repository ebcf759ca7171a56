"""The helper that tells wrapped specs from plain ones tests for the plain one, copied from its opposite.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'kv_cache_specs'
"""

from __future__ import annotations

from typing_extensions import TypeIs

from genericbuilders.specs import AttentionSpec, UniformTypeKVCacheSpecs
from typecheck.designs.asserting.attention import FlashInferBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC


def is_uniform(spec: AttentionSpec | UniformTypeKVCacheSpecs) -> TypeIs[UniformTypeKVCacheSpecs]:
    return isinstance(spec, AttentionSpec)  # E


class WorkspaceBuilder(FlashInferBuilder):
    """Attention from a plan, in one workspace."""

    def largest_page(self) -> int:
        """Bytes of the largest layer's page."""
        if is_uniform(self.kv_cache_spec):
            return max(spec.page_size_bytes for spec in self.kv_cache_spec.kv_cache_specs.values())
        return self.kv_cache_spec.page_size_bytes


def run() -> object:
    return WorkspaceBuilder(FULL_SPEC, ["attention"], CONFIG, CPU).largest_page()
