"""A model's layers: what they do with the metadata that the runner built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic

from torch import Tensor
from typing_extensions import TypeVar, override

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.generic.core import AttentionLayer, BackendAdapter, BoundGroup, Step
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, kv_cache, query
from typecheck.designs.shared.metadata import Mamba2Metadata

__all__ = ["Attention", "MambaMixer", "Module", "place"]

M = TypeVar("M")
S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)


class Module(ABC):
    """A layer of any kind."""

    @abstractmethod
    def forward(self, step: Step) -> Tensor:
        """Its output for this batch."""


class Attention(Module, Generic[M]):
    """Hands the metadata on to the back end's kernel."""

    def __init__(self, layer: AttentionLayer[M]) -> None:
        self.layer: AttentionLayer[M] = layer

    @override
    def forward(self, step: Step) -> Tensor:
        ones = query()
        return self.layer.impl.forward(ones, ones, ones, kv_cache(), step[self.layer])


class MambaMixer(Module):
    """Reads the metadata itself."""

    def __init__(self, layer: AttentionLayer[Mamba2Metadata]) -> None:
        self.layer: AttentionLayer[Mamba2Metadata] = layer

    @override
    def forward(self, step: Step) -> Tensor:
        metadata = step[self.layer]
        return metadata.state_indices * metadata.num_states


def place(adapter: BackendAdapter[M, S], spec: S) -> tuple[BoundGroup[M, S], AttentionLayer[M]]:
    """One layer on that back end, in a group of its own, under the back end's name."""
    layer = adapter.layer(adapter.name, HEADS)
    return adapter.bind(spec, [layer], CONFIG, CPU), layer
