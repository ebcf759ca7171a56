"""The base builder, a back end's class of classes, and the group of layers that a runner holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeAlias

import torch
from torch import Tensor
from typing_extensions import TypeVar

from genericbuilders.builder import AttentionCGSupport, AttentionImpl
from genericbuilders.config import EngineConfig
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec

__all__ = [
    "AnyBuilder",
    "AnyImpl",
    "AttentionBackend",
    "AttentionCGSupport",
    "AttentionGroup",
    "AttentionImpl",
    "AttentionMetadataBuilder",
    "Step",
]

M = TypeVar("M")

Step: TypeAlias = Mapping[str, object]
"""One batch's metadata by layer name."""


class AttentionMetadataBuilder(ABC, Generic[M]):
    """Turns a batch into the metadata ``M`` of one back end."""

    def __init__(
        self, kv_cache_spec: KVCacheSpec, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        # Without an annotation here: with one, pyright calls every re-annotation in a subclass an error.
        self.kv_cache_spec = kv_cache_spec  # pyright: ignore[reportUnannotatedClassAttribute]
        self.layer_names: tuple[str, ...] = tuple(layer_names)
        self.config: EngineConfig = config
        self.device: torch.device = device

    @classmethod
    def get_cudagraph_support(cls, config: EngineConfig, kv_cache_spec: KVCacheSpec) -> AttentionCGSupport:
        """The batches that this builder's metadata may be captured for."""
        del config, kv_cache_spec
        return AttentionCGSupport.NEVER

    @abstractmethod
    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> M:
        """The metadata of one batch."""

    def update_block_table(self, metadata: M, blk_table: Tensor, slot_mapping: Tensor) -> M:
        """``metadata`` for another group's blocks."""
        del metadata, blk_table, slot_mapping
        raise NotImplementedError(f"{type(self).__name__} cannot update a block table")


AnyBuilder: TypeAlias = AttentionMetadataBuilder[Any]  # pyright: ignore[reportExplicitAny]  a back end does not say
AnyImpl: TypeAlias = AttentionImpl[Any]  # pyright: ignore[reportExplicitAny]  likewise


class AttentionBackend(ABC):
    """A back end: the classes that it consists of."""

    @staticmethod
    @abstractmethod
    def get_name() -> str:
        """What configurations call it."""

    @staticmethod
    @abstractmethod
    def get_builder_cls() -> type[AnyBuilder]:
        """Its metadata builder."""

    @staticmethod
    @abstractmethod
    def get_impl_cls() -> type[AnyImpl]:
        """Its implementation."""


class AttentionGroup:
    """Layers that share one back end and one spec."""

    def __init__(
        self,
        backend: type[AttentionBackend],
        kv_cache_spec: KVCacheSpec,
        layer_names: Sequence[str],
        config: EngineConfig,
        device: torch.device,
    ) -> None:
        self.backend: type[AttentionBackend] = backend
        self.kv_cache_spec: KVCacheSpec = kv_cache_spec
        self.layer_names: Sequence[str] = layer_names
        self.builder: AnyBuilder = backend.get_builder_cls()(kv_cache_spec, layer_names, config, device)

    def cudagraph_support(self) -> AttentionCGSupport:
        """The batches that this group's metadata may be captured for."""
        return self.backend.get_builder_cls().get_cudagraph_support(self.builder.config, self.kv_cache_spec)

    def build(self, common: CommonAttentionMetadata) -> Step:
        """This batch's metadata for each of the group's layers."""
        metadata: object = self.builder.build(0, common)  # pyright: ignore[reportAny]  whatever it makes
        return dict.fromkeys(self.layer_names, metadata)
