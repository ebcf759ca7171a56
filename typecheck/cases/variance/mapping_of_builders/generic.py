"""A function that replaces back ends as the configuration says is given the mapping that holds Mamba2 only.

At run time: AttributeError: 'LinearMetadata' object has no attribute 'num_states'
"""

from __future__ import annotations

from collections.abc import Mapping

from genericbuilders.specs import MambaSpec
from typecheck.designs.generic.core import Adapter, BackendAdapter, Step
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.runner import new_registry
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata


def override_from(choice: Mapping[str, str], adapters: dict[str, Adapter]) -> None:
    registry = new_registry()
    adapters.update({layer: registry.by_name(name) for layer, name in choice.items()})


def run() -> object:
    mixers: dict[str, BackendAdapter[Mamba2Metadata, MambaSpec]] = {"mixer": MAMBA2}
    override_from({"mixer": "linear"}, mixers)  # E
    group, layer = place(mixers["mixer"], STATE_SPEC)
    step = Step()
    group.build(two_requests(), step)
    return step[layer].num_states
