"""The runner asks the first layer of a hybrid model what kind it is, and makes groups of that kind for all layers.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from collections.abc import Sequence

from genericbuilders.specs import KVCacheSpec, MambaSpec
from typecheck.designs.generic.core import Group
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, STATE_SPEC


def state_groups(specs: Sequence[KVCacheSpec]) -> list[Group]:
    groups: list[Group] = []
    if isinstance(specs[0], MambaSpec):
        for index, spec in enumerate(specs):
            groups.append(MAMBA2.bind(spec, [MAMBA2.layer(f"layers.{index}", HEADS)], CONFIG, CPU))  # E
    return groups


def run() -> object:
    return [group.cudagraph_support() for group in state_groups([STATE_SPEC, FULL_SPEC])]
