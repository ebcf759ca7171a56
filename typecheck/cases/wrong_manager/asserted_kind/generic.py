"""The runner makes the manager of a state layer, and reads the window that it would have for a window layer.

At run time: AttributeError: 'MambaSpec' object has no attribute 'sliding_window'
"""

from __future__ import annotations

from typecheck.designs.generic.managers import make_manager
from typecheck.designs.shared.batch import STATE_SPEC, new_pool


def run() -> object:
    manager = make_manager(STATE_SPEC, new_pool())
    return manager.spec.sliding_window  # E
