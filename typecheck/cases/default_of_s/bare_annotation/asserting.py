"""A helper asks any builder of full metadata about any spec the base knows; it is given the full builder and a state's
spec.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from genericbuilders.specs import AttentionSpec
from typecheck.designs.asserting.attention import FullBuilder
from typecheck.designs.asserting.core import AttentionCGSupport, AttentionMetadataBuilder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, STATE_SPEC
from typecheck.designs.shared.metadata import FullMetadata


def support_of(builder: AttentionMetadataBuilder[FullMetadata], spec: AttentionSpec) -> AttentionCGSupport:
    return builder.get_cudagraph_support(CONFIG, spec)


def run() -> object:
    builder = FullBuilder(FULL_SPEC, ["attention"], CONFIG, CPU)
    return support_of(builder, STATE_SPEC).name  # E
