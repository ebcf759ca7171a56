"""The runner joins the specs of attention layers and of state layers, and places all of them as attention layers.

At run time: BindError: adapter 'full' takes AttentionSpec
"""

from __future__ import annotations

from collections.abc import Mapping

from genericbuilders.specs import AttentionSpec
from typecheck.designs.covariant.attention import FULL
from typecheck.designs.covariant.core import Group
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, STATE_SPEC


def placed(specs: Mapping[str, AttentionSpec]) -> list[Group]:
    return [FULL.bind(spec, [FULL.layer(name, HEADS)], CONFIG, CPU) for name, spec in specs.items()]


def run() -> object:
    attention = {"layers.0": FULL_SPEC, "layers.2": FULL_SPEC}
    states = {"layers.1": STATE_SPEC}
    groups = placed({**attention, **states})  # E
    return [group.cudagraph_support() for group in groups]
