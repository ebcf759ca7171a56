"""The runner makes a manager for a group of any kind, and reads the window that only one kind of manager has.

At run time: AttributeError: 'MambaSpec' object has no attribute 'sliding_window'
"""

from __future__ import annotations

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.generic.managers import make_manager
from typecheck.designs.shared.batch import STATE_SPEC, WINDOW_SPEC, new_pool


def window_of(spec: KVCacheSpec) -> int:
    manager = make_manager(spec, new_pool())
    return manager.spec.sliding_window  # E


def run() -> object:
    return [window_of(spec) for spec in (WINDOW_SPEC, STATE_SPEC)]
