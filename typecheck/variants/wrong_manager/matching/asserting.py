"""The runner asks a manager for what only a window's manager knows.

Right: it was made for a window's spec.
"""

from __future__ import annotations

from typecheck.designs.asserting.managers import SlidingWindowManager, make_manager
from typecheck.designs.shared.batch import WINDOW_SPEC, new_pool


def run() -> object:
    manager = make_manager(WINDOW_SPEC, new_pool())
    assert isinstance(manager, SlidingWindowManager)
    return manager.sliding_window, manager.blocks_for_longest(64)
