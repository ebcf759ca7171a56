"""The runner merges two layers' specs and places the layers on one back end.

Right: both are full layers' specs, and after one was sharded they agree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch

from genericbuilders.specs import FullAttentionSpec
from typecheck.designs.asserting.attention import FullBackend
from typecheck.designs.asserting.core import AttentionGroup
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests

WIDE_SPEC: Final = FullAttentionSpec(block_size=4, num_kv_heads=4, head_size=8, dtype=torch.float32)


def run() -> object:
    specs = {"first": FULL_SPEC, "second": replace(WIDE_SPEC, num_kv_heads=2)}
    merged = FullAttentionSpec.merge(list(specs.values()))
    group = AttentionGroup(FullBackend, merged, list(specs), CONFIG, CPU)
    return sorted(group.build(two_requests())), merged.num_kv_heads
