"""A helper makes builders from a class that it knows by its base only; it is given a state builder and a full spec.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata
from typecheck.designs.widened.core import AttentionMetadataBuilder
from typecheck.designs.widened.state import Mamba2Builder


def make(
    builder: type[AttentionMetadataBuilder[Mamba2Metadata]], spec: KVCacheSpec
) -> AttentionMetadataBuilder[Mamba2Metadata]:
    return builder(spec, ["mixer"], CONFIG, CPU)


def run() -> object:
    builder = make(Mamba2Builder, FULL_SPEC)  # E
    return builder.build(0, two_requests())
