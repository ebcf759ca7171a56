"""Blocks of the key-value cache: who holds them, what they hold, and where a token's place is."""

from __future__ import annotations

from genericbuilders.cache.block_hash import BlockHash, extend_block_hashes, hash_block
from genericbuilders.cache.block_pool import NULL_BLOCK, BlockPool, OutOfBlocksError
from genericbuilders.cache.block_table import BlockTable
from genericbuilders.cache.choice import make_manager
from genericbuilders.cache.chunk_manager import ChunkedLocalManager
from genericbuilders.cache.coordinator import BlockNeed, KVCacheCoordinator
from genericbuilders.cache.cross_manager import CrossAttentionManager
from genericbuilders.cache.encoder_only_manager import EncoderOnlyManager
from genericbuilders.cache.full_manager import FullAttentionManager
from genericbuilders.cache.mamba_manager import MambaManager
from genericbuilders.cache.manager import GroupManager, KVCacheManager, NoManagerError
from genericbuilders.cache.plan import CachePlan, CachePlanError, GroupPlan, PoolStrategy, agree, plan_caches
from genericbuilders.cache.request_size import UNSIZED, RequestSize
from genericbuilders.cache.rswa_manager import RSWAManager
from genericbuilders.cache.sink_manager import SinkManager
from genericbuilders.cache.tail_manager import TailManager
from genericbuilders.cache.tensors import (
    allocate_kv_caches,
    allocate_shared_kv_caches,
    copy_blocks,
    with_sharing_layers,
    zero_blocks,
)
from genericbuilders.cache.window_manager import SlidingWindowManager

__all__ = [
    "NULL_BLOCK",
    "UNSIZED",
    "BlockHash",
    "BlockNeed",
    "BlockPool",
    "BlockTable",
    "CachePlan",
    "CachePlanError",
    "ChunkedLocalManager",
    "CrossAttentionManager",
    "EncoderOnlyManager",
    "FullAttentionManager",
    "GroupManager",
    "GroupPlan",
    "KVCacheCoordinator",
    "KVCacheManager",
    "MambaManager",
    "NoManagerError",
    "OutOfBlocksError",
    "PoolStrategy",
    "RSWAManager",
    "RequestSize",
    "SinkManager",
    "SlidingWindowManager",
    "TailManager",
    "agree",
    "allocate_kv_caches",
    "allocate_shared_kv_caches",
    "copy_blocks",
    "extend_block_hashes",
    "hash_block",
    "make_manager",
    "plan_caches",
    "with_sharing_layers",
    "zero_blocks",
]
