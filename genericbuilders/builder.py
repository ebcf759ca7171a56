"""The builder of one back end's metadata, generic in what it makes and in what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import IntEnum
from typing import Generic

import torch
from torch import Tensor
from typing_extensions import TypeVar

from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.rotary import Rotary, apply_rotary
from genericbuilders.specs import KVCacheSpec

__all__ = ["AttentionCGSupport", "AttentionImpl", "AttentionMetadataBuilder"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)


class AttentionCGSupport(IntEnum):
    """Which batches a back end's metadata may be captured for in a CUDA graph; a larger value allows more."""

    NEVER = 0
    UNIFORM_SINGLE_TOKEN_DECODE = 1
    UNIFORM_BATCH = 2
    ALWAYS = 3


class AttentionMetadataBuilder(ABC, Generic[M, S]):
    """Turns a batch into the metadata ``M`` that one back end's layers read, for caches described by ``S``.

    ``S`` may be a union of specs, and defaults to `KVCacheSpec`: ``class Mine(AttentionMetadataBuilder[MyMetadata])``
    takes any spec and may read only what all specs have.
    """

    def __init__(
        self, kv_cache_spec: S, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        self.kv_cache_spec: S = kv_cache_spec
        self.layer_names: tuple[str, ...] = tuple(layer_names)
        self.config = config
        self.device = device

    @classmethod
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: S) -> AttentionCGSupport:
        """The batches that this builder's metadata may be captured for. Unless overridden: none."""
        return AttentionCGSupport.NEVER

    @classmethod
    def get_kv_cache_shape(cls, num_blocks: int, kv_cache_spec: S) -> tuple[int, ...]:
        """The shape in which one layer's cache of ``num_blocks`` blocks is handed to the implementation.

        The first axis is the block. Unless overridden: raw pages, ``[num_blocks, page_size_bytes]``.
        """
        return (num_blocks, kv_cache_spec.page_size_bytes)

    @classmethod
    def get_kv_cache_dtype(cls, kv_cache_spec: S) -> torch.dtype:
        """The element type of that cache. Unless overridden: int8, one element a byte."""
        return torch.int8

    @abstractmethod
    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> M:
        """The metadata of one batch.

        Args:
            common_prefix_len: tokens at the front of every sequence that share the same blocks; 0 if unknown.
            common_attn_metadata: the batch.
            fast_build: prefer a quick build over the fastest kernel, as drafting does.
        """

    def build_for_cudagraph_capture(self, common_attn_metadata: CommonAttentionMetadata) -> M:
        """The metadata to capture a graph with. Unless overridden: what `build` makes."""
        return self.build(0, common_attn_metadata)

    def build_for_drafting(self, common_attn_metadata: CommonAttentionMetadata, draft_index: int) -> M:
        """The metadata of the draft model's step ``draft_index``. Unless overridden: a fast `build`."""
        return self.build(0, common_attn_metadata, fast_build=True)

    def update_block_table(self, metadata: M, blk_table: Tensor, slot_mapping: Tensor) -> M:
        """``metadata`` for another group of the same back end: same batch, other blocks and slots.

        Raises:
            NotImplementedError: this back end builds each group's metadata anew.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot update a block table; call build() for the group")


class AttentionImpl(ABC, Generic[M]):
    """Computes attention for one layer from the metadata ``M`` of its back end."""

    def __init__(self, layer: AttentionLayerConfig) -> None:
        self.layer = layer

    @abstractmethod
    def forward(self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: M) -> Tensor:
        """Store ``key`` and ``value`` in the cache and attend over it.

        Args:
            query: ``[num_tokens, num_heads, head_size]``, any strides with the last one 1.
            key: ``[num_tokens, num_kv_heads, head_size]``, likewise.
            value: ``[num_tokens, num_kv_heads, head_size]``, likewise.
            kv_cache: the layer's cache, in the shape that the builder's `get_kv_cache_shape` states.
            attn_metadata: this batch's metadata.

        Returns:
            ``[num_tokens, num_heads, head_size]``; rows behind the batch's tokens are zero.
        """

    def forward_rotary(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        rotary: Rotary,
        kv_cache: Tensor,
        attn_metadata: M,
    ) -> Tensor:
        """`forward` on ``query`` and ``key`` rotated by ``rotary``; override it to fuse the two.

        An override may rotate ``query`` in place.
        """
        query, key = apply_rotary(query, rotary), apply_rotary(key, rotary)
        return self.forward(query, key, value, kv_cache=kv_cache, attn_metadata=attn_metadata)
