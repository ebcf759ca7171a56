"""Back ends, layers and groups without their types: what runners hold and configurations name."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from genericbuilders.builder import AttentionCGSupport
from genericbuilders.config import AttentionLayerConfig, CommonPrefixRule, EngineConfig, LayerConfig
from genericbuilders.keys import Key, TypedMap
from genericbuilders.metadata import CommonAttentionMetadata
from genericbuilders.rotary import Rotary
from genericbuilders.specs import KVCacheSpec

__all__ = [
    "Adapter",
    "AnyAttentionLayer",
    "AttentionAdapter",
    "BackendUnavailableError",
    "BindError",
    "Group",
    "Layer",
    "Step",
]


class BindError(TypeError):
    """A spec, a layer or a group does not belong to the adapter that it was given to."""


class BackendUnavailableError(ImportError):
    """A back end needs a module that is not installed."""


class Step(TypedMap):
    """One batch's metadata of all groups: ``step[layer]`` is the ``M`` of that `TypedLayer`."""


class Layer(Key):
    """A layer of any back end. Its typed subclass is `TypedLayer`."""

    def __init__(self, name: str, config: LayerConfig, adapter: Adapter) -> None:
        super().__init__(name)
        self.config: LayerConfig = config
        self.adapter = adapter

    def fill_shared_blocks(self, kv_cache: Tensor, block_ids: Sequence[int]) -> None:
        """Write what stands in the blocks that all requests share, before anything runs. Unless overridden: nothing.

        Args:
            kv_cache: the layer's cache.
            block_ids: the blocks, in the order in which they stand at the front of every row of the block table.
        """
        return

    @property
    def cache_owner(self) -> Layer:
        """The layer whose cache this one attends over: itself, unless it is a `SharingLayer`."""
        return self

    def check_cache(self) -> None:
        """Refuse, at `bind`, a cache that the layer cannot read; its own it can.

        Raises:
            BindError: both layers are named.
        """


class AnyAttentionLayer(Layer, ABC):
    """A layer that attends over plain keys and values, of any back end. Its typed subclass is `AttentionLayer`.

    Whoever does not know the type of its metadata lets it find metadata and cache itself.
    """

    @abstractmethod
    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, step: Step, kv_caches: Mapping[Layer, Tensor]
    ) -> Tensor:
        """`AttentionImpl.forward` with the layer's own metadata and cache.

        Args:
            query: ``[num_tokens, num_heads, head_size]``.
            key: ``[num_tokens, num_kv_heads, head_size]``.
            value: ``[num_tokens, num_kv_heads, head_size]``.
            step: this batch's metadata of all layers.
            kv_caches: each layer's cache.

        Returns:
            ``[num_tokens, num_heads, head_size]``.

        Raises:
            KeyError: the step or the caches have nothing for this layer.
        """

    @abstractmethod
    def attend_rotary(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        rotary: Rotary,
        step: Step,
        kv_caches: Mapping[Layer, Tensor],
    ) -> Tensor:
        """`attend` on ``query`` and ``key`` rotated by ``rotary``; see `AttentionImpl.forward_rotary`."""


class Group(ABC):
    """Layers that share one adapter, one spec and one block table, whatever the back end.

    It has every operation that a runner does for all of them alike; for what is one back end's own,
    ask that back end's adapter: `TypedAdapter.owns` or `TypedAdapter.narrow`.
    """

    adapter: Adapter

    @property
    @abstractmethod
    def layers(self) -> Sequence[Layer]:
        """The group's layers."""

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The names of the group's layers."""
        return tuple(layer.name for layer in self.layers)

    @property
    def stored_layers(self) -> Sequence[Layer]:
        """Those of the group's layers that have caches of their own; all, unless some share another's."""
        return [layer for layer in self.layers if layer.cache_owner is layer]

    @property
    @abstractmethod
    def kv_cache_spec(self) -> KVCacheSpec:
        """What one layer's cache holds, as any spec; `BoundGroup.spec` has its own type."""

    def fill_shared_blocks(self, kv_caches: Mapping[Layer, Tensor], block_ids: Sequence[int]) -> None:
        """`Layer.fill_shared_blocks` for each of the group's layers; once, when the caches are there."""
        for layer in self.layers:
            layer.fill_shared_blocks(kv_caches[layer], block_ids)

    @abstractmethod
    def cudagraph_support(self) -> AttentionCGSupport:
        """The batches that this group's metadata may be captured for."""

    @abstractmethod
    def kv_cache_shape(self, num_blocks: int) -> tuple[int, ...]:
        """The shape of one layer's cache of ``num_blocks`` blocks; the first axis is the block."""

    @abstractmethod
    def kv_cache_dtype(self) -> torch.dtype:
        """The element type of that cache."""

    def common_prefix_rule(self) -> CommonPrefixRule | None:
        """From when on `build` wants to know of a prefix that all rows share; ``None``, unless overridden: never."""
        return None

    @abstractmethod
    def build(self, common: CommonAttentionMetadata, step: Step, common_prefix_len: int = 0) -> None:
        """Build this batch's metadata and hold it in ``step`` for each of the group's layers."""

    @abstractmethod
    def build_for_cudagraph_capture(self, common: CommonAttentionMetadata, step: Step) -> None:
        """The same for the batch that a graph is captured with."""


@dataclass(frozen=True, eq=False)
class Adapter(ABC):
    """A back end by name, without its types: what a configuration names and a registry lists.

    Two adapters are the same only if they are one object; names and classes may be shared.

    Attributes:
        name: what configurations call it.
        requires: modules that must be importable for it to run; they are looked for, never imported, to list it.
        needs: inputs, beyond the batch, that its builder reads from ``common.inputs``.
        reads: the back end whose caches its layers read, none of which has its own; ``None`` for all others.
    """

    name: str
    requires: tuple[str, ...] = field(default=(), kw_only=True)
    needs: tuple[Key, ...] = field(default=(), kw_only=True)
    reads: Adapter | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def spec_types(self) -> tuple[type[KVCacheSpec], ...]:
        """The spec classes that its builder takes."""

    @property
    @abstractmethod
    def metadata_type(self) -> object:
        """The type that its builder makes."""

    @abstractmethod
    def cudagraph_support(self, config: EngineConfig, spec: KVCacheSpec) -> AttentionCGSupport:
        """The batches its metadata may be captured for, for a spec that it takes."""

    @abstractmethod
    def bind_any(
        self,
        spec: KVCacheSpec,
        layers: Sequence[Layer],
        config: EngineConfig,
        device: torch.device,
        provided: Collection[Key] = (),
    ) -> Group:
        """`TypedAdapter.bind` for a spec and layers whose types the caller does not know; same checks."""

    def takes(self, spec: KVCacheSpec) -> bool:
        """Whether ``spec`` is of a class that the builder takes."""
        return isinstance(spec, self.spec_types)

    def unavailable(self) -> str | None:
        """Why it cannot run here, or ``None`` if it can. Imports nothing."""
        missing = [name for name in self.requires if importlib.util.find_spec(name.partition(".")[0]) is None]
        return f"needs {', '.join(missing)}, not installed" if missing else None


@dataclass(frozen=True, eq=False)
class AttentionAdapter(Adapter):
    """A back end of attention over plain keys and values, without its types; `BackendAdapter` has them.

    ``isinstance(adapter, AttentionAdapter)`` tells it from other back ends of a registry, and no type is unknown then.
    """

    @abstractmethod
    def layer(self, name: str, config: AttentionLayerConfig) -> AnyAttentionLayer:
        """A layer of this back end, with its kernel set up."""
