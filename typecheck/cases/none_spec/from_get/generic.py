"""The runner looks a layer's spec up with `dict.get`, misspells the layer, and uses what it gets.

At run time: BindError: adapter 'mamba2' takes MambaSpec
"""

from __future__ import annotations

from genericbuilders.specs import MambaSpec
from typecheck.designs.generic.core import Step
from typecheck.designs.generic.state import MAMBA2
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, STATE_SPEC, two_requests


def run() -> object:
    specs: dict[str, MambaSpec] = {"layers.0.mixer": STATE_SPEC, "layers.1.mixer": STATE_SPEC}
    layer = MAMBA2.layer("layers.1.mixer", HEADS)
    group = MAMBA2.bind(specs.get("layer.1.mixer"), [layer], CONFIG, CPU)  # E
    step = Step()
    group.build(two_requests(), step)
    return group.metadata(step)
