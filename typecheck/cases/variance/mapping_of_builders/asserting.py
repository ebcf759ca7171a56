"""A function that replaces back ends as the configuration says is given the mapping that holds Mamba2 only.

At run time: AssertionError:
"""

from __future__ import annotations

from collections.abc import Mapping

from typecheck.designs.asserting.core import AttentionBackend
from typecheck.designs.asserting.layers import place
from typecheck.designs.asserting.runner import new_registry
from typecheck.designs.asserting.state import Mamba2Backend
from typecheck.designs.shared.batch import STATE_SPEC, two_requests
from typecheck.designs.shared.metadata import Mamba2Metadata


def override_from(choice: Mapping[str, str], backends: dict[str, type[AttentionBackend]]) -> None:
    registry = new_registry()
    backends.update({layer: registry[name] for layer, name in choice.items()})


def run() -> object:
    mixers: dict[str, type[Mamba2Backend]] = {"mixer": Mamba2Backend}
    override_from({"mixer": "linear"}, mixers)  # E
    group = place(mixers["mixer"], STATE_SPEC)
    metadata = group.build(two_requests())[group.layer_names[0]]
    assert isinstance(metadata, Mamba2Metadata)
    return metadata.num_states
