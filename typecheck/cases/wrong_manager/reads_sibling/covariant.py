"""A manager of states keeps a window of them, and reads the window that only attention specs have.

At run time: AttributeError: 'MambaSpec' object has no attribute 'sliding_window'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.cache.request_size import UNSIZED, RequestSize
from genericbuilders.specs import cdiv
from typecheck.designs.covariant.managers import MambaManager
from typecheck.designs.shared.batch import STATE_SPEC, new_pool


class StateWindowManager(MambaManager):
    """The states of the last window of tokens are kept."""

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        return cdiv(min(num_tokens, self.spec.sliding_window), self.block_size)  # E


def run() -> object:
    return StateWindowManager(STATE_SPEC, new_pool()).blocks_for_longest(64)
