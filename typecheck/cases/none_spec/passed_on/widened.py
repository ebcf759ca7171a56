"""The runner makes a group for an encoder-only layer, which has no spec, without asking whether it has one.

At run time: AttributeError: 'NoneType' object has no attribute 'num_kv_heads'
"""

from __future__ import annotations

from typecheck.designs.shared.batch import CONFIG, CPU, LAYER_SPECS, two_requests
from typecheck.designs.widened.core import AttentionGroup
from typecheck.designs.widened.runner import new_registry


def run() -> object:
    spec = LAYER_SPECS["encoder"]
    group = AttentionGroup(new_registry()["full"], spec, ["encoder"], CONFIG, CPU)  # E
    return group.build(two_requests())
