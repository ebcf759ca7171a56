"""Adapters of back ends that select the tokens which other layers attend over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar

from genericbuilders.adapter.bound import TypedLayer
from genericbuilders.adapter.erased import Adapter
from genericbuilders.adapter.inputs import InputsAdapter
from genericbuilders.builder import IndexImpl
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
class IndexAdapter(InputsAdapter[M, S, X]):
    """One back end that selects tokens, with inputs ``X`` that its implementation decides.

    Attributes:
        impl: its implementation.
    """

    impl: type[IndexImpl[M, X]]

    def layer(self, name: str, config: IndexLayerConfig) -> IndexLayer[M, X]:
        """A layer of this back end: the key to its metadata, with its kernel set up."""
        return IndexLayer(name, config, self, self.impl(config))
