"""A hybrid model's layer has one of two kinds of spec; the runner hands whichever it is to the builder of one of them.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from genericbuilders.specs import FullAttentionSpec, MambaSpec
from typecheck.designs.generic.core import Step
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, STATE_SPEC, two_requests


def spec_of(layer_type: str) -> FullAttentionSpec | MambaSpec:
    return STATE_SPEC if layer_type == "mamba" else FULL_SPEC


def run() -> object:
    layer_types = ["mamba", "attention"]
    step = Step()
    for index, layer_type in enumerate(layer_types):
        layer = MAMBA2.layer(f"layers.{index}", HEADS)
        group = MAMBA2.bind(spec_of(layer_type), [layer], CONFIG, CPU)  # E
        group.build(two_requests(), step)
    return step
