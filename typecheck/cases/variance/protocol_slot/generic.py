"""A helper gives whatever has a spec the one that all layers share; it is used on a builder of latent attention.

At run time: wrong: 8; right: 24
"""

from __future__ import annotations

from typing import Protocol

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.generic.attention import MLABuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, MLA_SPEC, two_requests


class HasSpec(Protocol):
    """Whatever was made for a spec."""

    kv_cache_spec: KVCacheSpec


def share_spec(owner: HasSpec, shared: KVCacheSpec) -> None:
    owner.kv_cache_spec = shared


def run() -> object:
    builder = MLABuilder(MLA_SPEC, ["mla"], CONFIG, CPU)
    share_spec(builder, FULL_SPEC)  # E
    return builder.build(0, two_requests()).latent_size
