"""How a model's layers share block tables and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from genericbuilders.specs.arithmetic import require_at_least
from genericbuilders.specs.attention import AttentionSpec
from genericbuilders.specs.base import KVCacheSpec
from genericbuilders.specs.frozen_mapping import FrozenMapping
from genericbuilders.specs.mamba import MambaSpec
from genericbuilders.specs.uniform import UniformTypeKVCacheSpecs, iter_layer_specs

__all__ = ["KVCacheConfig", "KVCacheGroupSpec", "KVCacheTensor"]


@dataclass(frozen=True)
class KVCacheGroupSpec:
    """Layers that share one block table.

    Attributes:
        layer_names: the layers, in the model's order.
        kv_cache_spec: the spec of each of them, or one that wraps a spec for each.
        is_eagle_group: whether a draft model's layers are among them.

    Raises:
        ValueError: no layer, one named twice, or a wrapper whose layers are others.
    """

    layer_names: tuple[str, ...]
    kv_cache_spec: KVCacheSpec
    is_eagle_group: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "layer_names", tuple(self.layer_names))
        if not self.layer_names:
            raise ValueError("KVCacheGroupSpec: layer_names is empty; a group has at least one layer")
        twice = sorted({name for name in self.layer_names if self.layer_names.count(name) > 1})
        if twice:
            raise ValueError(f"KVCacheGroupSpec: layers {twice} are named more than once")
        if isinstance(self.kv_cache_spec, UniformTypeKVCacheSpecs):
            odd = sorted(set(self.layer_names) ^ set(self.kv_cache_spec.kv_cache_specs))
            if odd:
                raise ValueError(
                    f"KVCacheGroupSpec: layers {odd} are in only one of layer_names and kv_cache_spec.kv_cache_specs"
                )

    @property
    def layer_specs(self) -> Mapping[str, KVCacheSpec]:
        """Each layer's own spec, by name and in the group's order; a wrapper is taken off."""
        spec = self.kv_cache_spec
        if isinstance(spec, UniformTypeKVCacheSpecs):
            return FrozenMapping({name: spec.kv_cache_specs[name] for name in self.layer_names})
        return FrozenMapping(dict.fromkeys(self.layer_names, spec))

    @property
    def block_bytes(self) -> int:
        """The bytes that one block takes in all the group's layers together."""
        return sum(spec.page_size_bytes for spec in self.layer_specs.values())


@dataclass(frozen=True)
class KVCacheTensor:
    """Where the pages of some layers lie in one allocation.

    Tensors of different groups may overlap, as long as a block belongs to one group at a time.

    Attributes:
        size: bytes of the allocation.
        layers: the layers, in the order of their pages.
        layer_stride: bytes from a layer's page to the next layer's page of the same block.
        block_stride: bytes from a block's page to the next block's page of the same layer.
        offset: bytes before the first layer's page of block 0.

    Raises:
        ValueError: no layer, a size or stride below 1 byte, or an offset that is negative or beyond the end.
    """

    size: int
    layers: tuple[str, ...]
    layer_stride: int
    block_stride: int
    offset: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            raise ValueError("KVCacheTensor: layers is empty; a tensor serves at least one layer")
        for name in ("size", "layer_stride", "block_stride"):
            require_at_least(self, name, getattr(self, name), 1, "bytes")
        require_at_least(self, "offset", self.offset, 0, "bytes")
        if self.offset >= self.size:
            raise ValueError(f"KVCacheTensor: offset {self.offset} is not within the {self.size} bytes of size")

    def page_start(self, layer_name: str, block_id: int) -> int:
        """The byte at which a layer's page of one block starts.

        Raises:
            ValueError: the layer is not in this tensor.
        """
        if layer_name not in self.layers:
            raise ValueError(f"layer {layer_name!r} is not in this tensor, which holds {list(self.layers)}")
        return self.offset + self.layers.index(layer_name) * self.layer_stride + block_id * self.block_stride


@dataclass(frozen=True)
class KVCacheConfig:
    """The caches of one model on one device.

    Attributes:
        num_blocks: blocks in the pool, the null block included.
        kv_cache_tensors: where the layers' pages lie; empty if they are not placed yet.
        kv_cache_groups: the layers by block table.

    Raises:
        ValueError: fewer than 1 block, a layer in two groups, a tensor's layer in none, or pages beyond its end.
    """

    num_blocks: int
    kv_cache_tensors: tuple[KVCacheTensor, ...]
    kv_cache_groups: tuple[KVCacheGroupSpec, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kv_cache_tensors", tuple(self.kv_cache_tensors))
        object.__setattr__(self, "kv_cache_groups", tuple(self.kv_cache_groups))
        require_at_least(self, "num_blocks", self.num_blocks, 1, "blocks")
        specs: dict[str, KVCacheSpec] = {}
        for group in self.kv_cache_groups:
            for name, spec in group.layer_specs.items():
                if name in specs:
                    raise ValueError(f"KVCacheConfig: layer {name!r} is in two groups; its cache has one block table")
                specs[name] = spec
        for tensor in self.kv_cache_tensors:
            for name in tensor.layers:
                if name not in specs:
                    raise ValueError(f"KVCacheConfig: a tensor serves layer {name!r}, which is in no group")
                end = tensor.page_start(name, self.num_blocks - 1) + specs[name].page_size_bytes
                if end > tensor.size:
                    raise ValueError(
                        f"KVCacheConfig: {self.num_blocks} blocks of layer {name!r} end at byte {end}, beyond the "
                        f"{tensor.size} bytes of its tensor"
                    )

    def group_of(self, layer_name: str) -> int:
        """The index of the group that a layer is in.

        Raises:
            ValueError: it is in none.
        """
        for index, group in enumerate(self.kv_cache_groups):
            if layer_name in group.layer_names:
                return index
        raise ValueError(f"layer {layer_name!r} is in none of the {len(self.kv_cache_groups)} groups")

    @property
    def has_mamba_layers(self) -> bool:
        """Whether a layer keeps states."""
        return any(isinstance(spec, MambaSpec) for spec in self._layer_specs())

    @property
    def has_mixed_precision_kv_cache(self) -> bool:
        """Whether attention layers differ in dtype or quantisation."""
        attention = [spec for spec in self._layer_specs() if isinstance(spec, AttentionSpec)]
        return len({(spec.dtype, spec.kv_quant_mode) for spec in attention}) > 1

    @property
    def needs_kv_cache_zeroing(self) -> bool:
        """Whether a block must be cleared before a request gets it.

        A state is read before it is written; and a block that other layers filled in another precision may read as
        infinite or not a number.
        """
        return self.has_mamba_layers or self.has_mixed_precision_kv_cache

    def _layer_specs(self) -> list[KVCacheSpec]:
        return [spec for group in self.kv_cache_groups for spec in iter_layer_specs(group.kv_cache_spec)]
