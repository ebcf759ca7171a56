"""The runner looks a layer's spec up with `dict.get`, misspells the layer, and uses what it gets.

At run time: AssertionError:
"""

from __future__ import annotations

from genericbuilders.specs import MambaSpec
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.asserting.state import Mamba2Backend
from typecheck.designs.shared.batch import CONFIG, CPU, STATE_SPEC, two_requests


def run() -> object:
    specs: dict[str, MambaSpec] = {"layers.0.mixer": STATE_SPEC, "layers.1.mixer": STATE_SPEC}
    group = AttentionGroup(Mamba2Backend, specs.get("layer.1.mixer"), ["layers.1.mixer"], CONFIG, CPU)  # E
    return group.build(two_requests())
