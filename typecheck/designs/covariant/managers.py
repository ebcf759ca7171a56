"""Cache managers: invariant in the spec, as in the generic design, since nothing about them asks for more."""

from __future__ import annotations

from typecheck.designs.generic.managers import (
    FullAttentionManager,
    KVCacheManager,
    MambaManager,
    NoManagerError,
    SlidingWindowManager,
    WithoutPrefixCaching,
    make_manager,
)

__all__ = [
    "FullAttentionManager",
    "KVCacheManager",
    "MambaManager",
    "NoManagerError",
    "SlidingWindowManager",
    "WithoutPrefixCaching",
    "make_manager",
]
