"""The builder of one back end's metadata, generic in what it makes and in what it is given."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import IntEnum
from typing import Generic

import torch
from torch import Tensor
from typing_extensions import TypeVar

from genericbuilders.config import (
    AttentionLayerConfig,
    CommonPrefixRule,
    EngineConfig,
    LatentLayerConfig,
    StateLayerConfig,
)
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.rotary import Rotary, apply_rotary
from genericbuilders.sparse_config import IndexLayerConfig
from genericbuilders.specs import KVCacheSpec

__all__ = [
    "AttentionCGSupport",
    "AttentionImpl",
    "AttentionMetadataBuilder",
    "IndexImpl",
    "InputsImpl",
    "LatentImpl",
    "LayerImpl",
    "StateImpl",
]

M = TypeVar("M")
X = TypeVar("X")
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

    def common_prefix_rule(self) -> CommonPrefixRule | None:
        """From when on `build` wants to know of a common prefix; ``None`` if it has no use for one.

        Whoever makes batches looks for a common prefix only if this says so. Unless overridden: ``None``.
        """
        return None

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


class LayerImpl(ABC, Generic[M]):
    """Computes one layer from the metadata ``M`` of its back end; what its inputs are, a subclass says."""


class AttentionImpl(LayerImpl[M]):
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

    def read(self, query: Tensor, kv_cache: Tensor, attn_metadata: M) -> Tensor:
        """Attend over a cache in which an earlier layer has stored the batch's keys and values; stores nothing.

        Args:
            query: ``[num_tokens, num_heads, head_size]``, as in `forward`.
            kv_cache: that layer's cache.
            attn_metadata: this batch's metadata.

        Returns:
            ``[num_tokens, num_heads, head_size]``; rows behind the batch's tokens are zero.

        Raises:
            NotImplementedError: unless overridden; layers that share a cache are refused at `bind` then.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot read the cache of another layer; override read()")

    @classmethod
    def can_read(cls) -> bool:
        """Whether `read` is overridden."""
        return next(base for base in cls.__mro__ if "read" in vars(base)) is not AttentionImpl


class InputsImpl(LayerImpl[M], Generic[M, X]):
    """Computes one layer from the metadata ``M`` of its back end and the layer's own inputs ``X``.

    Layers that are more than attention over query, key and value share no list of tensors: each back end has a
    dataclass ``X`` of its inputs, weights included.
    """

    @abstractmethod
    def forward(self, inputs: X, kv_cache: Tensor, attn_metadata: M) -> Tensor:
        """Run the batch's tokens through the layer, and store what later ones need.

        Args:
            inputs: the layer's inputs and weights.
            kv_cache: the layer's cache, in the shape that the builder's `get_kv_cache_shape` states.
            attn_metadata: this batch's metadata.

        Returns:
            What the back end states; rows behind the batch's tokens are zero.
        """


class LatentImpl(InputsImpl[M, X]):
    """Computes latent attention for one layer: its cache holds one vector a token, for all heads."""

    def __init__(self, layer: LatentLayerConfig) -> None:
        self.layer = layer


class IndexImpl(InputsImpl[M, X]):
    """Selects the tokens that each token of another layer attends over: its cache holds one key a token."""

    def __init__(self, layer: IndexLayerConfig) -> None:
        self.layer = layer


class StateImpl(InputsImpl[M, X]):
    """Computes one state-space layer: its cache holds states, of which each row starts from one.

    The cache is ``[num_blocks, page_size_bytes]`` int8, the layer's pages; see `states`.
    """

    def __init__(self, layer: StateLayerConfig) -> None:
        self.layer = layer
        self._views: tuple[Tensor, tuple[Tensor, ...]] | None = None

    def states(self, kv_cache: Tensor) -> tuple[Tensor, ...]:
        """The tensors of a state in every page, ``[num_blocks, *shape]`` each, as views.

        Raises:
            ValueError: a page is smaller than a state, or not aligned to an element type.
        """
        # A layer's cache stays the same from step to step.
        if self._views is None or self._views[0] is not kv_cache:
            self._views = (kv_cache, _state_views(kv_cache, self.layer))
        return self._views[1]


def _state_views(pages: Tensor, layer: StateLayerConfig) -> tuple[Tensor, ...]:
    page_size = pages.stride(0) * pages.element_size()
    if layer.state_bytes > pages.shape[1] * pages.element_size():
        raise ValueError(
            f"a state of shapes {layer.shapes} has {layer.state_bytes} bytes, but a page of the cache has "
            f"{pages.shape[1] * pages.element_size()}"
        )
    views: list[Tensor] = []
    offset = 0
    for shape, dtype in zip(layer.shapes, layer.dtypes, strict=True):
        if page_size % dtype.itemsize:
            raise ValueError(
                f"a state tensor is {dtype}, but pages have {page_size} bytes, which is no multiple of "
                f"{dtype.itemsize}; pad pages to a multiple of the widest element"
            )
        size = math.prod(shape) * dtype.itemsize
        part = pages[:, offset : offset + size].view(dtype)
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        views.append(part.as_strided((len(pages), *shape), (part.stride(0), *strides), part.storage_offset()))
        offset += size
    return tuple(views)
