"""The runner makes a group for an encoder-only layer, which has no spec, without asking whether it has one.

At run time: BindError: adapter 'full' takes AttentionSpec, but layers ['encoder'] have a NoneType
"""

from __future__ import annotations

from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import Step
from typecheck.designs.generic.runner import new_registry
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, LAYER_SPECS, two_requests


def run() -> object:
    spec = LAYER_SPECS["encoder"]
    layer = FULL.layer("encoder", HEADS)
    group = new_registry().by_name("full").bind_any(spec, [layer], CONFIG, CPU)  # E
    step = Step()
    group.build(two_requests(), step)
    return step
