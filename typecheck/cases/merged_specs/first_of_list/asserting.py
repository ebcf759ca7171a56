"""The runner asks the first layer of a hybrid model what kind it is, and makes groups of that kind for all layers.

At run time: AssertionError:
"""

from __future__ import annotations

from collections.abc import Sequence

from genericbuilders.specs import KVCacheSpec, MambaSpec
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.state import Mamba2Backend
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, STATE_SPEC, two_requests


def state_groups(specs: Sequence[KVCacheSpec]) -> list[AttentionGroup]:
    groups: list[AttentionGroup] = []
    if isinstance(specs[0], MambaSpec):
        for index, spec in enumerate(specs):
            groups.append(AttentionGroup(Mamba2Backend, spec, [f"layers.{index}"], CONFIG, CPU))  # E
    return groups


def run() -> object:
    return [group.build(two_requests()) for group in state_groups([STATE_SPEC, FULL_SPEC])]
