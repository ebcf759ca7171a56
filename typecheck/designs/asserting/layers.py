"""A model's layers: what they do with the metadata that the runner built."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor
from typing_extensions import override

from genericbuilders.specs import KVCacheSpec
from typecheck.designs.asserting.core import AnyImpl, AttentionBackend, AttentionGroup, Step
from typecheck.designs.shared.batch import CONFIG, CPU, HEADS, kv_cache, query
from typecheck.designs.shared.metadata import Mamba2Metadata

__all__ = ["Attention", "MambaMixer", "Module", "place"]


class Module(ABC):
    """A layer of any kind."""

    @abstractmethod
    def forward(self, step: Step) -> Tensor:
        """Its output for this batch."""


class Attention(Module):
    """Hands the metadata on to the back end's kernel."""

    def __init__(self, name: str, backend: type[AttentionBackend]) -> None:
        self.name: str = name
        self.impl: AnyImpl = backend.get_impl_cls()(HEADS)

    @override
    def forward(self, step: Step) -> Tensor:
        ones = query()
        return self.impl.forward(ones, ones, ones, kv_cache(), step[self.name])


class MambaMixer(Module):
    """Reads the metadata itself."""

    def __init__(self, name: str) -> None:
        self.name: str = name

    @override
    def forward(self, step: Step) -> Tensor:
        metadata = step[self.name]
        assert isinstance(metadata, Mamba2Metadata)
        return metadata.state_indices * metadata.num_states


def place(backend: type[AttentionBackend], spec: KVCacheSpec) -> AttentionGroup:
    """One layer on that back end, in a group of its own, under the back end's name."""
    return AttentionGroup(backend, spec, [backend.get_name()], CONFIG, CPU)
