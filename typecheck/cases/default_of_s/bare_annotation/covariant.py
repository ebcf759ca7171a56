"""A helper asks any builder of full metadata about any spec the base knows; it is given the full builder and a state's
spec.

At run time: wrong: 'UNIFORM_BATCH'; right: 'UNIFORM_SINGLE_TOKEN_DECODE'
"""

from __future__ import annotations

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.covariant.attention import FULL
from typecheck.designs.covariant.core import AttentionCGSupport, AttentionMetadataBuilder
from typecheck.designs.covariant.layers import place
from typecheck.designs.shared.batch import CONFIG, FULL_SPEC, STATE_SPEC
from typecheck.designs.shared.metadata import FullMetadata


def support_of(builder: AttentionMetadataBuilder[FullMetadata], spec: KVCacheSpec) -> AttentionCGSupport:
    return builder.get_cudagraph_support(CONFIG, spec)


def run() -> object:
    group, _ = place(FULL, FULL_SPEC)
    return support_of(group.builder, STATE_SPEC).name  # E
