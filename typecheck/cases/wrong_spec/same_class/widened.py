"""The drafter's attention has one key-value head; its builder gets the target's spec, which has two.

At run time: wrong: [2, 2]; right: [2, 1]
"""

from __future__ import annotations

from typing import Final

import torch

from genericbuilders.specs import FullAttentionSpec
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, two_requests
from typecheck.designs.widened.attention import FullBuilder

DRAFT_SPEC: Final = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=torch.float32)


def run() -> object:
    target = FullBuilder(FULL_SPEC, ["attn"], CONFIG, CPU)
    draft = FullBuilder(FULL_SPEC, ["draft.attn"], CONFIG, CPU)  # E
    return [builder.build(0, two_requests()).num_kv_heads for builder in (target, draft)]
