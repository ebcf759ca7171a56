"""The author of a manager does not say which spec it is for, and reads the window that only some specs have.

At run time: AttributeError: 'MambaSpec' object has no attribute 'sliding_window'
"""

from __future__ import annotations

from typing_extensions import override

from genericbuilders.cache.request_size import UNSIZED, RequestSize
from genericbuilders.specs import cdiv
from typecheck.designs.shared.batch import STATE_SPEC, new_pool
from typecheck.designs.widened.managers import SingleTypeKVCacheManager


class TailManager(SingleTypeKVCacheManager):
    """The end of a request is kept."""

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        return cdiv(min(num_tokens, self.spec.sliding_window), self.block_size) + 1  # E


def run() -> object:
    return TailManager(STATE_SPEC, new_pool()).blocks_for_longest(64)
