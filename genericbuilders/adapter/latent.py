"""Adapters of back ends of latent attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar

from genericbuilders.adapter.bound import TypedLayer
from genericbuilders.adapter.erased import Adapter
from genericbuilders.adapter.inputs import InputsAdapter
from genericbuilders.builder import LatentImpl
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
class LatentAdapter(InputsAdapter[M, S, X]):
    """One back end of latent attention, with inputs ``X`` that its implementation decides.

    Attributes:
        impl: its implementation.
    """

    impl: type[LatentImpl[M, X]]

    def layer(self, name: str, config: LatentLayerConfig) -> LatentLayer[M, X]:
        """A layer of this back end: the key to its metadata, with its kernel set up."""
        return LatentLayer(name, config, self, self.impl(config))
