"""Blocks of the key-value cache: who holds them, what they hold, and where a token's place is."""

from __future__ import annotations

from genericbuilders.cache.block_hash import BlockHash, extend_block_hashes, hash_block
from genericbuilders.cache.block_pool import NULL_BLOCK, BlockPool, OutOfBlocksError
from genericbuilders.cache.block_table import BlockTable
from genericbuilders.cache.coordinator import BlockNeed, KVCacheCoordinator
from genericbuilders.cache.manager import (
    FullAttentionManager,
    GroupManager,
    KVCacheManager,
    NoManagerError,
    make_manager,
)
from genericbuilders.cache.tensors import allocate_kv_caches, num_blocks_for

__all__ = [
    "NULL_BLOCK",
    "BlockHash",
    "BlockNeed",
    "BlockPool",
    "BlockTable",
    "FullAttentionManager",
    "GroupManager",
    "KVCacheCoordinator",
    "KVCacheManager",
    "NoManagerError",
    "OutOfBlocksError",
    "allocate_kv_caches",
    "extend_block_hashes",
    "hash_block",
    "make_manager",
    "num_blocks_for",
]
