"""Cache managers: this design says nothing about them, and takes those that know their spec as any spec."""

from __future__ import annotations

from typecheck.designs.shared.managers import (
    SPEC_MANAGER_MAP,
    FullAttentionManager,
    MambaManager,
    NoManagerError,
    SingleTypeKVCacheManager,
    SlidingWindowManager,
    make_manager,
)

__all__ = [
    "SPEC_MANAGER_MAP",
    "FullAttentionManager",
    "MambaManager",
    "NoManagerError",
    "SingleTypeKVCacheManager",
    "SlidingWindowManager",
    "make_manager",
]
