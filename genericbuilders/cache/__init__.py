"""Blocks of the key-value cache: who holds them, what they hold, and where a token's place is."""

from __future__ import annotations

from genericbuilders.cache.block_hash import BlockHash, extend_block_hashes, hash_block
from genericbuilders.cache.block_pool import NULL_BLOCK, BlockPool, OutOfBlocksError
from genericbuilders.cache.block_table import BlockTable
from genericbuilders.cache.choice import make_manager
from genericbuilders.cache.coordinator import BlockNeed, KVCacheCoordinator
from genericbuilders.cache.mamba_manager import MambaManager
from genericbuilders.cache.manager import FullAttentionManager, GroupManager, KVCacheManager, NoManagerError
from genericbuilders.cache.plan import CachePlan, CachePlanError, GroupPlan, PoolStrategy, agree, plan_caches
from genericbuilders.cache.tensors import allocate_kv_caches, allocate_shared_kv_caches, copy_blocks, zero_blocks

__all__ = [
    "NULL_BLOCK",
    "BlockHash",
    "BlockNeed",
    "BlockPool",
    "BlockTable",
    "CachePlan",
    "CachePlanError",
    "FullAttentionManager",
    "GroupManager",
    "GroupPlan",
    "KVCacheCoordinator",
    "KVCacheManager",
    "MambaManager",
    "NoManagerError",
    "OutOfBlocksError",
    "PoolStrategy",
    "agree",
    "allocate_kv_caches",
    "allocate_shared_kv_caches",
    "copy_blocks",
    "extend_block_hashes",
    "hash_block",
    "make_manager",
    "plan_caches",
    "zero_blocks",
]
