"""Adapters of back ends that select the tokens which other layers attend over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar, override

from genericbuilders.adapter.bound import TypedAdapter, TypedLayer
from genericbuilders.adapter.erased import Adapter
from genericbuilders.builder import IndexImpl, LayerImpl
from genericbuilders.calls import INPUTS_IMPL_CALLS, Call
from genericbuilders.sparse_config import IndexLayerConfig
from genericbuilders.specs import KVCacheSpec

__all__ = ["IndexAdapter", "IndexLayer"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec)
X = TypeVar("X")


class IndexLayer(TypedLayer[M], Generic[M, X]):
    """One indexer: the key to its metadata in a `Step`, and its kernel with the inputs ``X``."""

    def __init__(self, name: str, config: IndexLayerConfig, adapter: Adapter, impl: IndexImpl[M, X]) -> None:
        super().__init__(name, config, adapter)
        self.impl = impl


@dataclass(frozen=True, eq=False)
class IndexAdapter(TypedAdapter[M, S], Generic[M, S, X]):
    """One back end that selects tokens: as `BackendAdapter`, with inputs ``X`` that its implementation decides.

    Attributes:
        impl: its implementation.

    Raises:
        TypeError: builder and implementation differ in ``M`` (both are named), or a type argument of
            theirs cannot be read at run time.
    """

    impl: type[IndexImpl[M, X]]

    @property
    @override
    def impl_type(self) -> type[LayerImpl[M]]:
        return self.impl

    @property
    @override
    def impl_calls(self) -> Sequence[Call]:
        return INPUTS_IMPL_CALLS

    def layer(self, name: str, config: IndexLayerConfig) -> IndexLayer[M, X]:
        """A layer of this back end: the key to its metadata, with its kernel set up."""
        return IndexLayer(name, config, self, self.impl(config))
