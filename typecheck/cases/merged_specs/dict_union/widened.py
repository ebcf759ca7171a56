"""The runner joins the specs of attention layers and of state layers, and places all of them as attention layers.

At run time: AttributeError: 'MambaSpec' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from collections.abc import Mapping

from genericbuilders.specs import AttentionSpec
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, STATE_SPEC, two_requests
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.core import AttentionGroup


def placed(specs: Mapping[str, AttentionSpec]) -> list[AttentionGroup]:
    return [AttentionGroup(FullBackend, spec, [name], CONFIG, CPU) for name, spec in specs.items()]


def run() -> object:
    attention = {"layers.0": FULL_SPEC, "layers.2": FULL_SPEC}
    states = {"layers.1": STATE_SPEC}
    groups = placed({**attention, **states})  # E
    return [group.build(two_requests()) for group in groups]
