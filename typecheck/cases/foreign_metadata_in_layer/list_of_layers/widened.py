"""The model runs all its layers with the metadata that it looked up for the first one.

At run time: AttributeError: 'FullMetadata' object has no attribute 'num_decodes'
"""

from __future__ import annotations

from collections.abc import Sequence

from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, kv_cache, query, two_requests
from typecheck.designs.widened.attention import FullBackend
from typecheck.designs.widened.core import Step
from typecheck.designs.widened.layers import Attention, place
from typecheck.designs.widened.runner import Runner
from typecheck.designs.widened.state import LinearBackend


def forward(layers: Sequence[Attention], step: Step) -> float:
    metadata = step[layers[0].name]
    total, ones = 0.0, query()
    for layer in layers:
        total += layer.impl.forward(ones, ones, ones, kv_cache(), metadata).sum().item()  # E
    return total


def run() -> object:
    step = Runner([place(FullBackend, FULL_SPEC), place(LinearBackend, STATE_SPEC)]).build(two_requests())
    return forward([Attention("full", FullBackend), Attention("linear", LinearBackend)], step)
