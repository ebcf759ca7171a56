"""The model runs all its layers with the metadata that it looked up for the first one.

At run time: AttributeError: 'FullMetadata' object has no attribute 'num_decodes'
"""

from __future__ import annotations

from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.core import AttentionLayer, Step
from typecheck.designs.generic.layers import place
from typecheck.designs.generic.runner import Runner
from typecheck.designs.generic.state import LINEAR
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, kv_cache, query, two_requests
from typecheck.designs.shared.metadata import FullMetadata, LinearMetadata


def forward(full: AttentionLayer[FullMetadata], linear: AttentionLayer[LinearMetadata], step: Step) -> float:
    metadata = step[full]
    total, ones = 0.0, query()
    for layer in (full, linear):
        total += layer.impl.forward(ones, ones, ones, kv_cache(), metadata).sum().item()  # E
    return total


def run() -> object:
    full, full_layer = place(FULL, FULL_SPEC)
    linear, linear_layer = place(LINEAR, STATE_SPEC)
    return forward(full_layer, linear_layer, Runner([full, linear]).build(two_requests()))
