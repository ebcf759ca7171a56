"""The author of a hybrid model's runner chooses managers by the kind of spec, and gets one kind wrong.

At run time: AttributeError: 'MambaSpec' object has no attribute 'sliding_window'
"""

from __future__ import annotations

from genericbuilders.cache import GroupManager
from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec
from typecheck.designs.generic.managers import FullAttentionManager, NoManagerError, SlidingWindowManager
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, new_pool


def manager_for(spec: KVCacheSpec) -> GroupManager:
    if isinstance(spec, FullAttentionSpec):
        return FullAttentionManager(spec, new_pool())
    if isinstance(spec, SlidingWindowSpec):
        return SlidingWindowManager(spec, new_pool())
    if isinstance(spec, MambaSpec):
        return SlidingWindowManager(spec, new_pool())  # E
    raise NoManagerError(f"no manager serves a {type(spec).__name__}")


def run() -> object:
    return [manager_for(spec).blocks_for_longest(64) for spec in (FULL_SPEC, STATE_SPEC)]
