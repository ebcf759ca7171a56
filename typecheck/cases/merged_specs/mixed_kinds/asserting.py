"""The runner merges the specs of a model's attention layers, and one of them is a window that nobody promoted.

At run time: SpecMergeError: FullAttentionSpec.merge takes specs of one type that is a FullAttentionSpec
"""

from __future__ import annotations

from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, WINDOW_SPEC, two_requests


def run() -> object:
    merged = FULL_SPEC.merge([FULL_SPEC, WINDOW_SPEC])  # E
    return AttentionGroup(FullBackend, merged, ["layers.0", "layers.1"], CONFIG, CPU).build(two_requests())
