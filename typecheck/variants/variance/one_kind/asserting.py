"""A list of groups of one particular type goes to a runner of any groups.

Right: the runner takes a read-only sequence, and those are groups.
"""

from __future__ import annotations

from genericbuilders.specs import AttentionSpec, UniformTypeKVCacheSpecs
from typecheck.designs.asserting.attention import FlashInferBackend, heads_of
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.runner import Runner
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, UNIFORM_SPEC, two_requests


class PlannedGroup(AttentionGroup):
    """A group whose layers were planned before."""

    def num_heads(self) -> int:
        """Key-value heads of its layers."""
        spec = self.kv_cache_spec
        assert isinstance(spec, AttentionSpec | UniformTypeKVCacheSpecs)
        return sum(heads_of(spec))


def run() -> object:
    groups: list[PlannedGroup] = [
        PlannedGroup(FlashInferBackend, spec, [name], CONFIG, CPU)
        for name, spec in (("first", FULL_SPEC), ("second", UNIFORM_SPEC))
    ]
    step = Runner(groups).build(two_requests())
    return len(step), [group.num_heads() for group in groups]
