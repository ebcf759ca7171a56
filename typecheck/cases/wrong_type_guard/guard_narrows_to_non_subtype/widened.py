"""A promoted layer still says its window, and the helper takes it for a window's spec, which is no kind of full spec.

At run time: wrong: 3; right: 16
"""

from __future__ import annotations

import torch
from typing_extensions import TypeIs

from genericbuilders.cache import BlockPool, GroupManager
from genericbuilders.specs import FullAttentionSpec, SlidingWindowSpec
from typecheck.designs.shared.batch import new_pool
from typecheck.designs.widened.managers import SlidingWindowManager, make_manager


def is_window(spec: FullAttentionSpec) -> TypeIs[SlidingWindowSpec]:  # E
    return spec.sliding_window is not None


def manager_for(spec: FullAttentionSpec, pool: BlockPool) -> GroupManager:
    if is_window(spec):
        return SlidingWindowManager(spec, pool)
    return make_manager(spec, pool)


def run() -> object:
    promoted = FullAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=torch.float32, sliding_window=8)
    return manager_for(promoted, new_pool()).blocks_for_longest(64)
