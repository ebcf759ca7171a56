"""The drafter's attention has one key-value head; its builder gets the target's spec, which has two.

At run time: wrong: [2, 2]; right: [2, 1]
"""

from __future__ import annotations

from typing import Final

import torch

from genericbuilders.specs import FullAttentionSpec
from typecheck.designs.generic.attention import FULL
from typecheck.designs.generic.runner import Runner
from typecheck.designs.shared.batch import CONFIG, CPU, FULL_SPEC, HEADS, two_requests

DRAFT_SPEC: Final = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=torch.float32)


def run() -> object:
    target = FULL.bind(FULL_SPEC, [FULL.layer("attn", HEADS)], CONFIG, CPU)
    draft = FULL.bind(FULL_SPEC, [FULL.layer("draft.attn", HEADS)], CONFIG, CPU)  # E
    step = Runner([target, draft]).build(two_requests())
    return [group.metadata(step).num_kv_heads for group in (target, draft)]
