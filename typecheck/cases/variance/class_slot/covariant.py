"""A warm-up takes any builder class of Mamba2's metadata and a spec for it; it is given the class over states and
another spec.

At run time: AttributeError: 'FullAttentionSpec' object has no attribute 'shapes'
"""

from __future__ import annotations

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.covariant.core import AttentionMetadataBuilder
from typecheck.designs.covariant.state import Mamba2Builder
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata


def warm_up(builder_cls: type[AttentionMetadataBuilder[Mamba2Metadata]], spec: KVCacheSpec) -> Mamba2Metadata:
    return builder_cls(spec, ["mixer"], CONFIG, CPU).build(0, two_requests())


def run() -> object:
    return warm_up(Mamba2Builder, FULL_SPEC).num_states  # E
