"""Layers without a cache of their own: they attend over the keys and values that an earlier layer has stored.

So do the last layers of Gemma 3n and of YOCO's decoders (Sun et al. 2024). What such a layer must not do, its type does
not have: it takes a query alone, and its target is a layer that stores.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.adapter.bound import TypedLayer
from genericbuilders.adapter.erased import Adapter, BindError, Layer
from genericbuilders.config import AttentionLayerConfig, LayerConfig

__all__ = ["CacheReader", "SharingLayer"]

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)


class CacheReader(Protocol[M_contra]):
    """The part of an `AttentionImpl` that stores nothing."""

    def read(self, query: Tensor, kv_cache: Tensor, attn_metadata: M_contra) -> Tensor:
        """See `AttentionImpl.read`."""
        ...

    @classmethod
    def can_read(cls) -> bool:
        """Whether `read` is there."""
        ...


class SharingLayer(TypedLayer[M]):
    """One attention layer that reads another's cache: the key to its own metadata in a `Step`, and its kernel.

    ``kv_caches[layer]`` is the target's memory. It takes none itself, and the target's blocks are its own.

    Attributes:
        impl: what attends.
        target: the layer that stores, as any layer.
    """

    def __init__(
        self, name: str, config: AttentionLayerConfig, adapter: Adapter, impl: CacheReader[M], target: TypedLayer[M]
    ) -> None:
        super().__init__(name, config, adapter)
        self.impl = impl
        self.target: Layer = target

    @property
    @override
    def cache_owner(self) -> Layer:
        return self.target

    @override
    def check_cache(self) -> None:
        """Refuse a target that this layer cannot read.

        Raises:
            BindError: it shares a cache itself, is of another back end, has other key-value heads or another layout, or
                the back end cannot read without storing; both layers are named.
        """
        told = f"layer {self.name!r} cannot share the cache of layer {self.target.name!r}"
        own, other, owner = self.config, self.target.config, self.target.cache_owner
        if owner is not self.target:
            raise BindError(
                f"{told}, which has none: it shares that of layer {owner.name!r}; make {owner.name!r} the target"
            )
        stores, stored = _storing(self.adapter), _storing(self.target.adapter)
        if stores is not stored:
            raise BindError(f"{told}: its back end is {stores.name!r}, the other's {stored.name!r}; they must be one")
        if _heads(own) != _heads(other):
            raise BindError(f"{told}: it has {_heads(own)}, the other {_heads(other)}")
        if own.kv_cache_layout is not other.kv_cache_layout:
            raise BindError(
                f"{told}: it reads the layout {own.kv_cache_layout.value}, but the other stores in "
                f"{other.kv_cache_layout.value}"
            )
        if not self.impl.can_read():
            raise BindError(f"{told}: the implementation of {self.adapter.name!r} has no read(), which stores nothing")


def _storing(adapter: Adapter) -> Adapter:
    return adapter if adapter.reads is None else adapter.reads


def _heads(config: LayerConfig) -> str:
    if not isinstance(config, AttentionLayerConfig):
        return f"a {type(config).__name__} without keys and values"
    return f"{config.num_kv_heads} key-value heads of size {config.head_size}"
