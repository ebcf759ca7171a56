"""The manager of a plug-in's window layers is derived from the one that keeps every block.

At run time: NoManagerError: RecentTokensManager does not serve a SlidingWindowSpec
"""

from __future__ import annotations

from genericbuilders.specs import SlidingWindowSpec
from typecheck.designs.covariant.managers import FullAttentionManager
from typecheck.designs.shared.batch import WINDOW_SPEC, new_pool


class RecentTokensManager(FullAttentionManager[SlidingWindowSpec]):  # E
    """The last window of tokens is kept."""


def run() -> object:
    return RecentTokensManager(WINDOW_SPEC, new_pool()).blocks_for_longest(64)
