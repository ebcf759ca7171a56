"""A builder that is covariant in its spec, and an adapter for it; groups, layers, steps, registry are the library's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeGuard

import torch
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.adapter import Adapter, AttentionLayer, BindError, Group, Layer, Step
from genericbuilders.builder import AttentionCGSupport, AttentionImpl
from genericbuilders.config import AttentionLayerConfig, EngineConfig
from genericbuilders.generics import generic_arguments, union_members
from genericbuilders.keys import Key
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.registry import Registry
from genericbuilders.specs import KVCacheSpec

__all__ = [
    "Adapter",
    "AttentionCGSupport",
    "AttentionImpl",
    "AttentionLayer",
    "AttentionMetadataBuilder",
    "BackendAdapter",
    "BoundGroup",
    "Group",
    "Layer",
    "Registry",
    "Step",
]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)
S_co = TypeVar("S_co", bound=KVCacheSpec, default=KVCacheSpec, covariant=True)


class AttentionMetadataBuilder(ABC, Generic[M, S_co]):
    """Turns a batch into the metadata ``M`` of one back end, for caches described by ``S_co``."""

    def __init__(
        self, kv_cache_spec: S_co, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> None:
        self._kv_cache_spec: S_co = kv_cache_spec
        self.layer_names: tuple[str, ...] = tuple(layer_names)
        self.config: EngineConfig = config
        self.device: torch.device = device

    @property
    def kv_cache_spec(self) -> S_co:
        """What the builder was given."""
        return self._kv_cache_spec

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

    def build_for_cudagraph_capture(self, common_attn_metadata: CommonAttentionMetadata) -> M:
        """The metadata to capture a graph with."""
        return self.build(0, common_attn_metadata)

    def update_block_table(self, metadata: M, blk_table: Tensor, slot_mapping: Tensor) -> M:
        """``metadata`` for another group's blocks."""
        del metadata, blk_table, slot_mapping
        raise NotImplementedError(f"{type(self).__name__} cannot update a block table")


class BoundGroup(Group, Generic[M, S]):
    """A group at its own types."""

    def __init__(
        self,
        adapter: Adapter,
        spec: S,
        layers: Sequence[AttentionLayer[M]],
        builder: AttentionMetadataBuilder[M, S],
    ) -> None:
        self.adapter: Adapter = adapter
        self.spec: S = spec
        self._layers: tuple[AttentionLayer[M], ...] = tuple(layers)
        self.builder: AttentionMetadataBuilder[M, S] = builder

    @property
    @override
    def layers(self) -> Sequence[AttentionLayer[M]]:
        return self._layers

    @property
    @override
    def kv_cache_spec(self) -> KVCacheSpec:
        return self.spec

    @override
    def cudagraph_support(self) -> AttentionCGSupport:
        return self.adapter.cudagraph_support(self.builder.config, self.spec)

    @override
    def kv_cache_shape(self, num_blocks: int) -> tuple[int, ...]:
        return (num_blocks, self.spec.page_size_bytes)

    @override
    def kv_cache_dtype(self) -> torch.dtype:
        return torch.int8

    @override
    def build(self, common: CommonAttentionMetadata, step: Step, common_prefix_len: int = 0) -> None:
        self.hold(step, self.builder.build(common_prefix_len, common))

    @override
    def build_for_cudagraph_capture(self, common: CommonAttentionMetadata, step: Step) -> None:
        self.hold(step, self.builder.build_for_cudagraph_capture(common))

    def hold(self, step: Step, metadata: M) -> None:
        """Hold ``metadata`` in ``step`` for each of the group's layers."""
        for layer in self.layers:
            step.put(layer, metadata)

    def metadata(self, step: Step) -> M:
        """What was built for this group in ``step``."""
        return step[self.layers[0]]

    def update_block_table(self, metadata: M, blk_table: Tensor, slot_mapping: Tensor) -> M:
        """See `AttentionMetadataBuilder.update_block_table`."""
        return self.builder.update_block_table(metadata, blk_table, slot_mapping)


@dataclass(frozen=True, eq=False)
class BackendAdapter(Adapter, Generic[M, S]):
    """One back end: the builder decides ``M`` and ``S``; the implementation must read the same ``M``."""

    builder: type[AttentionMetadataBuilder[M, S]]
    impl: type[AttentionImpl[M]]
    _spec_types: tuple[type[KVCacheSpec], ...] = field(init=False, repr=False)
    _metadata_type: object = field(init=False, repr=False)

    def __post_init__(self) -> None:
        made, spec = generic_arguments(self.builder, AttentionMetadataBuilder)
        (read,) = generic_arguments(self.impl, AttentionImpl)
        if made != read:
            raise TypeError(f"adapter {self.name!r}: the builder makes {made}, the implementation reads {read}")
        members = union_members(spec, self.builder)
        object.__setattr__(self, "_spec_types", tuple(each for each in members if issubclass(each, KVCacheSpec)))
        object.__setattr__(self, "_metadata_type", made)

    @property
    @override
    def spec_types(self) -> tuple[type[KVCacheSpec], ...]:
        return self._spec_types

    @property
    @override
    def metadata_type(self) -> object:
        return self._metadata_type

    def layer(self, name: str, config: AttentionLayerConfig) -> AttentionLayer[M]:
        """A layer of this back end."""
        return AttentionLayer(name, config, self, self.impl(config))

    def bind(
        self, spec: S, layers: Sequence[AttentionLayer[M]], config: EngineConfig, device: torch.device
    ) -> BoundGroup[M, S]:
        """Bring ``spec`` and the builder together."""
        if not self.takes(spec):
            raise self._refusal(spec)
        return BoundGroup(self, spec, layers, self.builder(spec, [layer.name for layer in layers], config, device))

    @override
    def bind_any(
        self,
        spec: KVCacheSpec,
        layers: Sequence[Layer],
        config: EngineConfig,
        device: torch.device,
        provided: Collection[Key] = (),
    ) -> Group:
        if not self.accepts(spec):
            raise self._refusal(spec)
        return self.bind(spec, [layer for layer in layers if self._made(layer)], config, device)

    @override
    def cudagraph_support(self, config: EngineConfig, spec: KVCacheSpec) -> AttentionCGSupport:
        return self.builder.get_cudagraph_support(config, spec)

    def accepts(self, spec: KVCacheSpec) -> TypeGuard[S]:
        """`takes`, narrowing ``spec`` for the checker."""
        return self.takes(spec)

    def owns(self, group: Group) -> TypeGuard[BoundGroup[M, S]]:
        """Whether this very adapter bound ``group``."""
        return group.adapter is self and isinstance(group, BoundGroup)

    def narrow(self, group: Group) -> BoundGroup[M, S]:
        """``group`` at its types."""
        if self.owns(group):
            return group
        raise BindError(f"the group was bound by adapter {group.adapter.name!r}, not by {self.name!r}")

    def _made(self, layer: Layer) -> TypeGuard[AttentionLayer[M]]:
        return layer.adapter is self

    def _refusal(self, spec: KVCacheSpec) -> BindError:
        taken = " or ".join(spec_type.__name__ for spec_type in self.spec_types)
        return BindError(f"adapter {self.name!r} takes {taken}, but it was given a {type(spec).__name__}")
