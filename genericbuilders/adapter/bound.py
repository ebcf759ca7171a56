"""Back ends, layers and groups at their types: builder, specification and metadata tied together once.

`TypedAdapter.bind` is the only place where a spec meets a builder. What it returns is typed in both,
and is also a `Group`, which a runner holds for any back end without either type.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeGuard

import torch
from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.adapter.erased import Adapter, BackendUnavailableError, BindError, Group, Layer, Step
from genericbuilders.builder import AttentionCGSupport, AttentionMetadataBuilder, LayerImpl
from genericbuilders.calls import BUILDER_CALLS, Call, check_calls
from genericbuilders.config import CommonPrefixRule, EngineConfig
from genericbuilders.generics import generic_arguments, union_members
from genericbuilders.keys import Key, TypedKey
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.specs import KVCacheSpec

__all__ = ["BoundGroup", "TypedAdapter", "TypedLayer"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)


class TypedLayer(Layer, TypedKey[M]):
    """One layer of a back end whose metadata is ``M``: the key to its metadata in a `Step`."""


class BoundGroup(Group, Generic[M, S]):
    """A `Group` at its own types. Made by `TypedAdapter.bind` only."""

    def __init__(
        self,
        adapter: Adapter,
        spec: S,
        layers: Sequence[TypedLayer[M]],
        builder: AttentionMetadataBuilder[M, S],
    ) -> None:
        self.adapter = adapter
        self.spec: S = spec
        self._layers = tuple(layers)
        self.builder = builder

    @property
    @override
    def layers(self) -> Sequence[TypedLayer[M]]:
        return self._layers

    @property
    @override
    def kv_cache_spec(self) -> KVCacheSpec:
        return self.spec

    @override
    def cudagraph_support(self) -> AttentionCGSupport:
        return self.builder.get_cudagraph_support(self.builder.config, self.spec)

    @override
    def kv_cache_shape(self, num_blocks: int) -> tuple[int, ...]:
        return self.builder.get_kv_cache_shape(num_blocks, self.spec)

    @override
    def kv_cache_dtype(self) -> torch.dtype:
        return self.builder.get_kv_cache_dtype(self.spec)

    @override
    def common_prefix_rule(self) -> CommonPrefixRule | None:
        return self.builder.common_prefix_rule()

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
        """What was built for this group in ``step``.

        Raises:
            KeyError: nothing was.
        """
        return step[self.layers[0]]

    def update_block_table(self, metadata: M, blk_table: Tensor, slot_mapping: Tensor) -> M:
        """See `AttentionMetadataBuilder.update_block_table`."""
        return self.builder.update_block_table(metadata, blk_table, slot_mapping)


@dataclass(frozen=True, eq=False)
class TypedAdapter(Adapter, Generic[M, S]):
    """One back end at its types: the builder decides ``M`` and ``S``; the implementation must read the same ``M``.

    Construct a `BackendAdapter` for attention, and a `StateAdapter` for state-space layers.

    Attributes:
        builder: its metadata builder. ``S`` has no other source.

    Raises:
        TypeError: builder and implementation differ in ``M`` (both are named), or a type argument of
            theirs cannot be read at run time.
    """

    builder: type[AttentionMetadataBuilder[M, S]]
    _spec_types: tuple[type[KVCacheSpec], ...] = field(init=False, repr=False)
    _metadata_type: object = field(init=False, repr=False)

    def __post_init__(self) -> None:
        made, spec = generic_arguments(self.builder, AttentionMetadataBuilder)
        impl = self.impl_type
        (read,) = generic_arguments(impl, LayerImpl)
        if made != read:
            raise TypeError(
                f"adapter {self.name!r}: {self.builder.__qualname__} makes {_name(made)}, but "
                f"{impl.__qualname__} reads {_name(read)}; pair a builder and an "
                "implementation of one metadata type"
            )
        spec_types: list[type[KVCacheSpec]] = []
        for spec_type in union_members(spec, self.builder):
            if not issubclass(spec_type, KVCacheSpec):
                raise TypeError(
                    f"adapter {self.name!r}: {self.builder.__qualname__} takes {spec_type!r}, no KVCacheSpec"
                )
            spec_types.append(spec_type)
        object.__setattr__(self, "_spec_types", tuple(spec_types))
        object.__setattr__(self, "_metadata_type", made)

    @property
    @override
    def spec_types(self) -> tuple[type[KVCacheSpec], ...]:
        return self._spec_types

    @property
    @override
    def metadata_type(self) -> object:
        return self._metadata_type

    @property
    @abstractmethod
    def impl_type(self) -> type[LayerImpl[M]]:
        """Its implementation, whatever the kind."""

    @property
    @abstractmethod
    def impl_calls(self) -> Sequence[Call]:
        """The calls that the library makes on the implementation."""

    def bind(
        self,
        spec: S,
        layers: Sequence[TypedLayer[M]],
        config: EngineConfig,
        device: torch.device,
        provided: Collection[Key] = (),
    ) -> BoundGroup[M, S]:
        """Bring ``spec`` and the builder together, for layers that share both.

        Call it after promotion, re-blocking and unwrapping, with the spec that the layers run with.

        Args:
            spec: what one layer's cache holds.
            layers: the group's layers, made by this adapter's `layer`.
            config: the run's settings.
            device: where the metadata's tensors live.
            provided: the inputs beyond the batch that the caller puts into ``common.inputs``.

        Raises:
            BindError: the spec's class is not one that the builder takes, a layer is another adapter's, there is
                no layer, a layer cannot read the cache that it shares, or the builder needs an input that is not
                provided.
            SignatureMismatchError: a method does not take what the library passes to it.
            BackendUnavailableError: a module that it requires is not installed.
        """
        names = [layer.name for layer in layers]
        if not self.takes(spec):
            raise self._refusal(spec, names)
        if not names:
            raise BindError(f"adapter {self.name!r}: a group needs at least one layer")
        self._own(layers)
        for layer in layers:
            layer.check_cache()
            if self.reads is not None and layer.cache_owner is layer:
                raise BindError(
                    f"adapter {self.name!r} reads caches that {self.reads.name!r} has stored, but layer {layer.name!r} "
                    "has one of its own; make it with sharing_layer(...), or by the other adapter"
                )
        unmet = [need.name for need in self.needs if need not in provided]
        if unmet:
            raise BindError(f"adapter {self.name!r} needs {unmet} in common.inputs, which the caller does not provide")
        reason = self.unavailable()
        if reason is not None:
            raise BackendUnavailableError(f"adapter {self.name!r} {reason}")
        check_calls(self.builder, BUILDER_CALLS)
        check_calls(self.impl_type, self.impl_calls)
        return BoundGroup(self, spec, layers, self.make_builder(spec, names, config, device))

    def make_builder(
        self, spec: S, layer_names: Sequence[str], config: EngineConfig, device: torch.device
    ) -> AttentionMetadataBuilder[M, S]:
        """The builder alone, unchecked, for a back end that wraps this one; all others call `bind`."""
        return self.builder(spec, layer_names, config, device)

    def kv_cache_shape(self, num_blocks: int, spec: S) -> tuple[int, ...]:
        """See `AttentionMetadataBuilder.get_kv_cache_shape`."""
        return self.builder.get_kv_cache_shape(num_blocks, spec)

    def kv_cache_dtype(self, spec: S) -> torch.dtype:
        """See `AttentionMetadataBuilder.get_kv_cache_dtype`."""
        return self.builder.get_kv_cache_dtype(spec)

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
            raise self._refusal(spec, [layer.name for layer in layers])
        return self.bind(spec, self._own(layers), config, device, provided)

    @override
    def cudagraph_support(self, config: EngineConfig, spec: KVCacheSpec) -> AttentionCGSupport:
        if not self.accepts(spec):
            raise self._refusal(spec, [])
        return self.builder.get_cudagraph_support(config, spec)

    def accepts(self, spec: KVCacheSpec) -> TypeGuard[S]:
        """`takes`, narrowing ``spec`` for the checker."""
        return self.takes(spec)

    def owns(self, group: Group) -> TypeGuard[BoundGroup[M, S]]:
        """Whether this very adapter bound ``group``; if so it is known at its types from here on."""
        return group.adapter is self and isinstance(group, BoundGroup)

    def narrow(self, group: Group) -> BoundGroup[M, S]:
        """``group`` at its types.

        Raises:
            BindError: another adapter bound it.
        """
        if self.owns(group):
            return group
        raise BindError(f"group of layers {list(group.layer_names)} was bound by {self._other(group.adapter.name)}")

    def _own(self, layers: Sequence[Layer]) -> list[TypedLayer[M]]:
        for layer in layers:
            if layer.adapter is not self:
                raise BindError(
                    f"layer {layer.name!r} was made by {self._other(layer.adapter.name)}; "
                    "bind it with the adapter that made it"
                )
        return [layer for layer in layers if self._made(layer)]

    def _other(self, name: str) -> str:
        if name == self.name:
            return f"another adapter that is called {name!r}, too"
        return f"adapter {name!r}, not by {self.name!r}"

    def _made(self, layer: Layer) -> TypeGuard[TypedLayer[M]]:
        return layer.adapter is self

    def _refusal(self, spec: KVCacheSpec, layer_names: Sequence[str]) -> BindError:
        taken = " or ".join(spec_type.__name__ for spec_type in self.spec_types)
        layers = f"layers {list(layer_names)} have" if layer_names else "it was given"
        return BindError(
            f"adapter {self.name!r} takes {taken}, but {layers} a {type(spec).__name__}; "
            "choose the adapter by the spec: registry.for_spec(spec)"
        )


def _name(thing: object) -> str:
    return str(getattr(thing, "__qualname__", thing))
