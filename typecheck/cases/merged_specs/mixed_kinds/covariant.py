"""The runner merges the specs of a model's attention layers, and one of them is a window that nobody promoted.

At run time: SpecMergeError: FullAttentionSpec.merge takes specs of one type that is a FullAttentionSpec
"""

from __future__ import annotations

from typecheck.designs.covariant.attention import FULL
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, WINDOW_SPEC


def run() -> object:
    merged = FULL_SPEC.merge([FULL_SPEC, WINDOW_SPEC])  # E
    layers = [FULL.layer(name, HEADS) for name in ("layers.0", "layers.1")]
    return FULL.bind(merged, layers, CONFIG, CPU)
