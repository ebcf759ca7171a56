"""A layer says which spec it has, or none; the runner makes its cache manager from the answer as it is.

At run time: AttributeError: 'NoneType' object has no attribute 'allocation_key'
"""

from __future__ import annotations

from genericbuilders.specs import FullAttentionSpec
from typecheck.designs.generic.managers import FullAttentionManager
from typecheck.designs.shared.batch import FULL_SPEC, new_pool


class EncoderLayer:
    """Attends within one input; it caches nothing unless the decoder reads it again."""

    def __init__(self, keeps_output: bool) -> None:
        self.keeps_output: bool = keeps_output

    def get_kv_cache_spec(self) -> FullAttentionSpec | None:
        """What its cache holds, if it has one."""
        return FULL_SPEC if self.keeps_output else None


def run() -> object:
    layer = EncoderLayer(keeps_output=False)
    manager = FullAttentionManager(layer.get_kv_cache_spec(), new_pool())  # E
    return manager.blocks_for_longest(64)
