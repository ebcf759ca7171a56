"""A function names a builder by its metadata and the spec that it reads, and is given one of them.

Right: it reads of the spec what that kind of spec has.
"""

from __future__ import annotations

from genericbuilders.specs import AttentionSpec
from typecheck.designs.covariant.attention import FullBuilder
from typecheck.designs.covariant.core import AttentionMetadataBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC
from typecheck.designs.shared.metadata import FullMetadata


def page_bytes(builder: AttentionMetadataBuilder[FullMetadata, AttentionSpec]) -> int:
    return builder.kv_cache_spec.page_size_bytes


def run() -> object:
    return page_bytes(FullBuilder(FULL_SPEC, ["attn"], CONFIG, CPU))
