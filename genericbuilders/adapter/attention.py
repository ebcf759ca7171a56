"""Adapters of attention back ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.adapter.bound import TypedAdapter, TypedLayer
from genericbuilders.adapter.erased import Adapter, AnyAttentionLayer, AttentionAdapter, Layer, Step
from genericbuilders.adapter.sharing import SharingLayer
from genericbuilders.builder import AttentionImpl, LayerImpl
from genericbuilders.calls import IMPL_CALLS, Call
from genericbuilders.config import AttentionLayerConfig
from genericbuilders.rotary import Rotary
from genericbuilders.specs import KVCacheSpec

__all__ = ["AttentionLayer", "BackendAdapter"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)


class AttentionLayer(TypedLayer[M], AnyAttentionLayer):
    """One attention layer: the key to its metadata in a `Step`, and its kernel."""

    def __init__(self, name: str, config: AttentionLayerConfig, adapter: Adapter, impl: AttentionImpl[M]) -> None:
        super().__init__(name, config, adapter)
        self.impl = impl

    @override
    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, step: Step, kv_caches: Mapping[Layer, Tensor]
    ) -> Tensor:
        return self.impl.forward(query, key, value, kv_cache=kv_caches[self], attn_metadata=step[self])

    @override
    def attend_rotary(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        rotary: Rotary,
        step: Step,
        kv_caches: Mapping[Layer, Tensor],
    ) -> Tensor:
        return self.impl.forward_rotary(
            query, key, value, rotary=rotary, kv_cache=kv_caches[self], attn_metadata=step[self]
        )


@dataclass(frozen=True, eq=False)
class BackendAdapter(TypedAdapter[M, S], AttentionAdapter, Generic[M, S]):
    """One attention back end: the builder decides ``M`` and ``S``; the implementation must read the same ``M``.

    Attributes:
        impl: its implementation.

    Raises:
        TypeError: builder and implementation differ in ``M`` (both are named), or a type argument of
            theirs cannot be read at run time.
    """

    impl: type[AttentionImpl[M]]

    @property
    @override
    def impl_type(self) -> type[LayerImpl[M]]:
        return self.impl

    @property
    @override
    def impl_calls(self) -> Sequence[Call]:
        return IMPL_CALLS

    @override
    def layer(self, name: str, config: AttentionLayerConfig) -> AttentionLayer[M]:
        """A layer of this back end: the key to its metadata, with its kernel set up."""
        return AttentionLayer(name, config, self, self.impl(config))

    def sharing_layer(self, name: str, config: AttentionLayerConfig, target: AttentionLayer[M]) -> SharingLayer[M]:
        """A layer that stores nothing and attends over the cache of ``target``, an earlier layer.

        Args:
            name: its own.
            config: what it is made of; its key-value heads are those of ``target``.
            target: a layer of this back end, or of the one that this one `reads`.
        """
        return SharingLayer(name, config, self, self.impl(config), target)
