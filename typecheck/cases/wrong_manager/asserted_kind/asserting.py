"""The runner makes the manager of a state layer, and reads the window that it would have for a window layer.

At run time: AssertionError:
"""

from __future__ import annotations

from typecheck.designs.asserting.managers import SlidingWindowManager, make_manager
from typecheck.designs.shared.batch import STATE_SPEC, new_pool


def run() -> object:
    manager = make_manager(STATE_SPEC, new_pool())
    assert isinstance(manager, SlidingWindowManager)  # E
    return manager.sliding_window
