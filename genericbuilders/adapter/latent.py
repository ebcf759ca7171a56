"""Adapters of back ends of latent attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar, override

from genericbuilders.adapter.bound import TypedAdapter, TypedLayer
from genericbuilders.adapter.erased import Adapter
from genericbuilders.builder import LatentImpl, LayerImpl
from genericbuilders.calls import INPUTS_IMPL_CALLS, Call
from genericbuilders.config import LatentLayerConfig
from genericbuilders.specs import KVCacheSpec

__all__ = ["LatentAdapter", "LatentLayer"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)
X = TypeVar("X")


class LatentLayer(TypedLayer[M], Generic[M, X]):
    """One layer of latent attention: the key to its metadata in a `Step`, and its kernel with the inputs ``X``."""

    def __init__(self, name: str, config: LatentLayerConfig, adapter: Adapter, impl: LatentImpl[M, X]) -> None:
        super().__init__(name, config, adapter)
        self.impl = impl


@dataclass(frozen=True, eq=False)
class LatentAdapter(TypedAdapter[M, S], Generic[M, S, X]):
    """One back end of latent attention: as `BackendAdapter`, with inputs ``X`` that its implementation decides.

    Attributes:
        impl: its implementation.

    Raises:
        TypeError: builder and implementation differ in ``M`` (both are named), or a type argument of
            theirs cannot be read at run time.
    """

    impl: type[LatentImpl[M, X]]

    @property
    @override
    def impl_type(self) -> type[LayerImpl[M]]:
        return self.impl

    @property
    @override
    def impl_calls(self) -> Sequence[Call]:
        return INPUTS_IMPL_CALLS

    def layer(self, name: str, config: LatentLayerConfig) -> LatentLayer[M, X]:
        """A layer of this back end: the key to its metadata, with its kernel set up."""
        return LatentLayer(name, config, self, self.impl(config))
