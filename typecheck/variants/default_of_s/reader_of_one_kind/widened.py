"""A function names a builder by its class and is given one of them.

Right: it reads of the spec what that kind of spec has.
"""

from __future__ import annotations

from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC
from typecheck.designs.widened.attention import FullBuilder


def page_bytes(builder: FullBuilder) -> int:
    return builder.kv_cache_spec.page_size_bytes


def run() -> object:
    return page_bytes(FullBuilder(FULL_SPEC, ["attn"], CONFIG, CPU))
