"""The author of a hybrid model's runner chooses managers by the kind of spec, and gets one kind wrong.

At run time: AttributeError: 'MambaSpec' object has no attribute 'sliding_window'
"""

from __future__ import annotations

from typing import Final

from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec
from typecheck.designs.asserting.managers import FullAttentionManager, SingleTypeKVCacheManager, SlidingWindowManager
from typecheck.designs.shared.batch import FULL_SPEC, STATE_SPEC, new_pool

MANAGERS: Final[dict[type[KVCacheSpec], type[SingleTypeKVCacheManager]]] = {
    FullAttentionSpec: FullAttentionManager,
    SlidingWindowSpec: SlidingWindowManager,
    MambaSpec: SlidingWindowManager,  # E
}


def manager_for(spec: KVCacheSpec) -> SingleTypeKVCacheManager:
    return MANAGERS[type(spec)](spec, new_pool())


def run() -> object:
    return [manager_for(spec).blocks_for_longest(64) for spec in (FULL_SPEC, STATE_SPEC)]
