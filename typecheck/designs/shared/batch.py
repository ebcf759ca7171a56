"""One batch, one configuration and one spec of each kind, for programs and cases to run on."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from genericbuilders.cache import BlockPool
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import (
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

__all__ = [
    "CONFIG",
    "CPU",
    "FULL_SPEC",
    "HEADS",
    "LAYER_SPECS",
    "MLA_SPEC",
    "STATE_SPEC",
    "UNIFORM_SPEC",
    "WINDOW_SPEC",
    "kv_cache",
    "new_pool",
    "query",
    "two_requests",
]

CPU: Final = torch.device("cpu")
HEADS: Final = AttentionLayerConfig(num_heads=4, num_kv_heads=2, head_size=8, scale=8**-0.5)
CONFIG: Final = EngineConfig(max_model_len=64, num_speculative_tokens=1)
FULL_SPEC: Final = FullAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=torch.float32)
WINDOW_SPEC: Final = SlidingWindowSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=torch.float32, sliding_window=8)
MLA_SPEC: Final = MLAAttentionSpec(block_size=4, num_kv_heads=1, head_size=24, dtype=torch.float32)
STATE_SPEC: Final = MambaSpec(block_size=4, shapes=((2, 3), (4,)), dtypes=(torch.float32, torch.float32))
UNIFORM_SPEC: Final = UniformTypeKVCacheSpecs(
    4,
    {
        "wide": FULL_SPEC,
        "narrow": FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=8, dtype=torch.float32),
    },
)
LAYER_SPECS: Final[dict[str, KVCacheSpec | None]] = {
    "full": FULL_SPEC,
    "mla": MLA_SPEC,
    "flashinfer": UNIFORM_SPEC,
    "mamba2": STATE_SPEC,
    "gdn": STATE_SPEC,
    "linear": STATE_SPEC,
    "paged_tree": FULL_SPEC,
    "encoder": None,
}
"""Every layer's spec by its name; an encoder-only layer has none."""


def two_requests() -> CommonAttentionMetadata:
    """A batch of a prefill of 3 tokens and a decode at position 4; blocks of 4 tokens."""
    starts = torch.tensor([0, 3, 4], dtype=torch.int32)
    lengths = torch.tensor([3, 5], dtype=torch.int32)
    return CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lengths,
        seq_lens_cpu=lengths,
        num_computed_tokens_cpu=torch.tensor([0, 4], dtype=torch.int32),
        num_reqs=2,
        num_actual_tokens=4,
        max_query_len=3,
        max_seq_len=5,
        block_table_tensor=torch.tensor([[1, 0], [2, 3]], dtype=torch.int32),
        slot_mapping=torch.tensor([4, 5, 6, 12]),
    )


def query() -> Tensor:
    """``[num_tokens, num_heads, head_size]`` for that batch, all ones."""
    return torch.ones(4, 4, 8)


def kv_cache() -> Tensor:
    """A cache that the small back ends ignore."""
    return torch.zeros(1)


def new_pool() -> BlockPool:
    """A pool of 32 blocks."""
    return BlockPool(32)
