"""A list of groups of one particular type goes to a runner of any groups.

Right: the runner takes a read-only sequence, and those are groups.
"""

from __future__ import annotations

from genericbuilders.specs import AttentionSpec, UniformTypeKVCacheSpecs
from typecheck.designs.covariant.attention import FLASHINFER, heads_of
from typecheck.designs.covariant.core import BoundGroup
from typecheck.designs.covariant.runner import Runner
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, UNIFORM_SPEC, two_requests
from typecheck.designs.shared.metadata import FlashInferMetadata


def run() -> object:
    groups: list[BoundGroup[FlashInferMetadata, AttentionSpec | UniformTypeKVCacheSpecs]] = [
        FLASHINFER.bind(spec, [FLASHINFER.layer(name, HEADS)], CONFIG, CPU)
        for name, spec in (("first", FULL_SPEC), ("second", UNIFORM_SPEC))
    ]
    step = Runner(groups).build(two_requests())
    return len(step), [sum(heads_of(group.spec)) for group in groups]
