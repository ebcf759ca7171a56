"""A helper asks any builder of full metadata about any spec the base knows; it is given the full builder and a state's
spec.

At run time: wrong: 'UNIFORM_BATCH'; right: 'UNIFORM_SINGLE_TOKEN_DECODE'
"""

from __future__ import annotations

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, STATE_SPEC
from typecheck.designs.shared.metadata import FullMetadata
from typecheck.designs.widened.attention import FullBuilder
from typecheck.designs.widened.core import AttentionCGSupport, AttentionMetadataBuilder


def support_of(builder: AttentionMetadataBuilder[FullMetadata], spec: KVCacheSpec) -> AttentionCGSupport:
    return builder.get_cudagraph_support(CONFIG, spec)


def run() -> object:
    builder = FullBuilder(FULL_SPEC, ["attention"], CONFIG, CPU)
    return support_of(builder, STATE_SPEC).name  # E
