"""A function names a builder by its metadata type only, and is given one whose spec's type is narrower than any.

Right: it reads of the spec what every spec has.
"""

from __future__ import annotations

from typecheck.designs.generic.attention import FullBuilder
from typecheck.designs.generic.core import AttentionMetadataBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC
from typecheck.designs.shared.metadata import FullMetadata


def page_bytes(builder: AttentionMetadataBuilder[FullMetadata]) -> int:
    return builder.kv_cache_spec.page_size_bytes


def run() -> object:
    return page_bytes(FullBuilder(FULL_SPEC, ["attn"], CONFIG, CPU))
