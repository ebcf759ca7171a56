"""Adapters of state-space back ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar, override

from genericbuilders.adapter.bound import TypedAdapter, TypedLayer
from genericbuilders.adapter.erased import Adapter
from genericbuilders.builder import LayerImpl, StateImpl
from genericbuilders.calls import INPUTS_IMPL_CALLS, Call
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
class StateAdapter(TypedAdapter[M, S], Generic[M, S, X]):
    """One state-space back end: as `BackendAdapter`, with inputs ``X`` that its implementation decides.

    Attributes:
        impl: its implementation.

    Raises:
        TypeError: builder and implementation differ in ``M`` (both are named), or a type argument of
            theirs cannot be read at run time.
    """

    impl: type[StateImpl[M, X]]

    @property
    @override
    def impl_type(self) -> type[LayerImpl[M]]:
        return self.impl

    @property
    @override
    def impl_calls(self) -> Sequence[Call]:
        return INPUTS_IMPL_CALLS

    def layer(self, name: str, config: StateLayerConfig) -> StateLayer[M, X]:
        """A layer of this back end: the key to its metadata, with its kernel set up."""
        return StateLayer(name, config, self, self.impl(config))
