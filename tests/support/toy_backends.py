"""Small back ends for tests: two attention ones and a state-space one, that compute next to nothing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import BackendAdapter
from genericbuilders.builder import AttentionCGSupport, AttentionImpl, AttentionMetadataBuilder
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import AttentionSpec, FullAttentionSpec, KVCacheSpec, MambaSpec

__all__ = [
    "CONFIG",
    "CPU",
    "FULL_SPEC",
    "HEADS",
    "STATE_SPEC",
    "AnyMetadata",
    "AnySpecBuilder",
    "DenseBuilder",
    "DenseImpl",
    "DenseMetadata",
    "StateBuilder",
    "StateImpl",
    "StateMetadata",
    "dense_adapter",
    "one_request",
    "state_adapter",
]

CPU = torch.device("cpu")
HEADS = AttentionLayerConfig(num_heads=4, num_kv_heads=2, head_size=8, scale=8**-0.5)
CONFIG = EngineConfig(max_model_len=64, layers={"l0": HEADS, "l1": HEADS})
FULL_SPEC = FullAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, dtype=torch.float32)
STATE_SPEC = MambaSpec(block_size=4, shapes=((2, 3),), dtypes=(torch.float32,))


@dataclass
class DenseMetadata:
    block_table: Tensor
    num_kv_heads: int


@dataclass
class StateMetadata:
    state_indices: Tensor


@dataclass
class AnyMetadata:
    num_reqs: int


class DenseBuilder(AttentionMetadataBuilder[DenseMetadata, AttentionSpec]):
    @classmethod
    @override
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: AttentionSpec) -> AttentionCGSupport:
        return AttentionCGSupport.ALWAYS if kv_cache_spec.num_kv_heads > 1 else AttentionCGSupport.UNIFORM_BATCH

    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> DenseMetadata:
        return DenseMetadata(common_attn_metadata.block_table_tensor, self.kv_cache_spec.num_kv_heads)

    @override
    def update_block_table(self, metadata: DenseMetadata, blk_table: Tensor, slot_mapping: Tensor) -> DenseMetadata:
        return DenseMetadata(blk_table, metadata.num_kv_heads)


class StateBuilder(AttentionMetadataBuilder[StateMetadata, MambaSpec]):
    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> StateMetadata:
        return StateMetadata(common_attn_metadata.block_table_tensor[:, 0])


class AnySpecBuilder(AttentionMetadataBuilder[AnyMetadata]):
    @override
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> AnyMetadata:
        return AnyMetadata(common_attn_metadata.num_reqs)


class DenseImpl(AttentionImpl[DenseMetadata]):
    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: DenseMetadata
    ) -> Tensor:
        return query * attn_metadata.num_kv_heads


class StateImpl(AttentionImpl[StateMetadata]):
    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: StateMetadata
    ) -> Tensor:
        return query + attn_metadata.state_indices.shape[0]


def dense_adapter(name: str = "dense") -> BackendAdapter[DenseMetadata, AttentionSpec]:
    return BackendAdapter(name, DenseBuilder, DenseImpl)


def state_adapter(name: str = "state") -> BackendAdapter[StateMetadata, MambaSpec]:
    return BackendAdapter(name, StateBuilder, StateImpl)


def one_request(query_len: int = 1, seq_len: int = 1, spec: KVCacheSpec = FULL_SPEC) -> CommonAttentionMetadata:
    """A batch of one request whose blocks are 1, 2, ..."""
    num_blocks = -(-seq_len // spec.block_size)
    blocks = torch.arange(1, num_blocks + 1, dtype=torch.int32)
    positions = torch.arange(seq_len - query_len, seq_len)
    starts = torch.tensor([0, query_len], dtype=torch.int32)
    lengths = torch.tensor([seq_len], dtype=torch.int32)
    return CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lengths,
        seq_lens_cpu=lengths,
        num_computed_tokens_cpu=lengths - query_len,
        num_reqs=1,
        num_actual_tokens=query_len,
        max_query_len=query_len,
        max_seq_len=seq_len,
        block_table_tensor=blocks[None],
        slot_mapping=blocks[positions // spec.block_size] * spec.block_size + positions % spec.block_size,
    )
