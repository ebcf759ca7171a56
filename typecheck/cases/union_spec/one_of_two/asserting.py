"""A hybrid model's layer has one of two kinds of spec; the runner hands whichever it is to the builder of one of them.

At run time: AssertionError:
"""

from __future__ import annotations

from genericbuilders.specs import FullAttentionSpec, MambaSpec
from typecheck.designs.asserting.core import AttentionGroup, Step
from typecheck.designs.asserting.state import Mamba2Backend
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, STATE_SPEC, two_requests


def spec_of(layer_type: str) -> FullAttentionSpec | MambaSpec:
    return STATE_SPEC if layer_type == "mamba" else FULL_SPEC


def run() -> object:
    layer_types = ["mamba", "attention"]
    steps: list[Step] = []
    for index, layer_type in enumerate(layer_types):
        group = AttentionGroup(Mamba2Backend, spec_of(layer_type), [f"layers.{index}"], CONFIG, CPU)  # E
        steps.append(group.build(two_requests()))
    return steps
