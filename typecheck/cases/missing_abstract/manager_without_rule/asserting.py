"""A manager is made of which one rule is missing: the blocks that a request holds at most.

At run time: TypeError: Can't instantiate abstract class SinkManager
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from typecheck.designs.asserting.managers import SingleTypeKVCacheManager
from typecheck.designs.shared.batch import FULL_SPEC, new_pool


class SinkManager(SingleTypeKVCacheManager):
    """The first tokens are kept as well."""

    @override
    def num_common_prefix_blocks(self, request_ids: Sequence[str]) -> int:
        return 1 if request_ids else 0


def run() -> object:
    manager = SinkManager(FULL_SPEC, new_pool())  # E
    return manager.num_common_prefix_blocks(["a", "b"])
