"""The runner looks a layer's spec up with `dict.get`, misspells the layer, and uses what it gets.

At run time: AttributeError: 'NoneType' object has no attribute 'shapes'
"""

from __future__ import annotations

from genericbuilders.specs import MambaSpec
from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.state import Mamba2Backend


def run() -> object:
    specs: dict[str, MambaSpec] = {"layers.0.mixer": STATE_SPEC, "layers.1.mixer": STATE_SPEC}
    group = AttentionGroup(Mamba2Backend, specs.get("layer.1.mixer"), ["layers.1.mixer"], CONFIG, CPU)  # E
    return group.build(two_requests())
