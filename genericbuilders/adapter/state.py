"""Adapters of state-space back ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar

from genericbuilders.adapter.bound import TypedLayer
from genericbuilders.adapter.erased import Adapter
from genericbuilders.adapter.inputs import InputsAdapter
from genericbuilders.builder import StateImpl
from genericbuilders.config import StateLayerConfig
from genericbuilders.specs import KVCacheSpec

__all__ = ["StateAdapter", "StateLayer"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)
X = TypeVar("X")


class StateLayer(TypedLayer[M], Generic[M, X]):
    """One state-space layer: the key to its metadata in a `Step`, and its kernel, which takes the inputs ``X``."""

    def __init__(self, name: str, config: StateLayerConfig, adapter: Adapter, impl: StateImpl[M, X]) -> None:
        super().__init__(name, config, adapter)
        self.impl = impl


@dataclass(frozen=True, eq=False)
class StateAdapter(InputsAdapter[M, S, X]):
    """One state-space back end, with inputs ``X`` that its implementation decides.

    Attributes:
        impl: its implementation.
    """

    impl: type[StateImpl[M, X]]

    def layer(self, name: str, config: StateLayerConfig) -> StateLayer[M, X]:
        """A layer of this back end: the key to its metadata, with its kernel set up."""
        return StateLayer(name, config, self, self.impl(config))
