"""A `TypeGuard` says of a sequence of specs that all are attention layers'.

Right: it looks at every one of them, and a read-only sequence may be narrowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from genericbuilders.specs import AttentionSpec, KVCacheSpec
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, MLA_SPEC, two_requests
from typecheck.designs.widened.attention import FullBuilder


def all_attention(specs: Sequence[KVCacheSpec]) -> TypeGuard[Sequence[AttentionSpec]]:
    return all(isinstance(spec, AttentionSpec) for spec in specs)


def run() -> object:
    specs: Sequence[KVCacheSpec] = [FULL_SPEC, MLA_SPEC]
    if not all_attention(specs):
        raise TypeError("the full back end takes attention layers only")
    builders = [FullBuilder(spec, ["attn"], CONFIG, CPU) for spec in specs]
    return [builder.build(0, two_requests()).num_kv_heads for builder in builders]
