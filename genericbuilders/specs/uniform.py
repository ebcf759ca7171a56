"""Layers that differ, but share one block table."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from genericbuilders.config import EngineConfig
from genericbuilders.specs.base import KVCacheSpec
from genericbuilders.specs.frozen_mapping import FrozenMapping

__all__ = ["UniformTypeKVCacheSpecs", "iter_layer_specs"]


@dataclass(frozen=True)
class UniformTypeKVCacheSpecs(KVCacheSpec):
    """Specs of layers that hold the same blocks at every moment, though their pages differ.

    One block takes one page in each of the layers. Each layer keeps its own spec: unwrap with `iter_layer_specs`
    or `KVCacheGroupSpec.layer_specs` before asking for a spec's type.

    Attributes:
        kv_cache_specs: spec by layer name; copied, and not to be changed.

    Raises:
        ValueError: there is no layer, one is wrapped itself, or layers differ in block size or allocation.
    """

    kv_cache_specs: Mapping[str, KVCacheSpec]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "kv_cache_specs", FrozenMapping(self.kv_cache_specs))
        if not self.kv_cache_specs:
            raise ValueError("UniformTypeKVCacheSpecs: kv_cache_specs is empty; at least one layer is needed")
        for name, spec in self.kv_cache_specs.items():
            if isinstance(spec, UniformTypeKVCacheSpecs):
                raise ValueError(f"UniformTypeKVCacheSpecs: layer {name!r} is wrapped already; give its own spec")
            if spec.block_size != self.block_size:
                raise ValueError(
                    f"UniformTypeKVCacheSpecs: block_size is {self.block_size} tokens, but layer {name!r} has "
                    f"{spec.block_size}; re-block it with copy_with_new_block_size, or give it a group of its own"
                )
        by_key = {spec.allocation_key: name for name, spec in self.kv_cache_specs.items()}
        if len(by_key) > 1:
            told = "; ".join(sorted(f"layer {name!r}: {_show_key(key)}" for key, name in by_key.items()))
            raise ValueError(
                f"UniformTypeKVCacheSpecs: layers hold different blocks ({told}); give them groups of their own"
            )

    @property
    def page_size_bytes(self) -> int:
        """The bytes that one block takes in all layers together."""
        return sum(spec.page_size_bytes for spec in self.kv_cache_specs.values())

    @property
    def allocation_key(self) -> tuple[Hashable, ...]:
        """The key that all layers share."""
        return next(iter(self.kv_cache_specs.values())).allocation_key

    @property
    def has_slots(self) -> bool:
        """The layers' own answer; they agree."""
        return all(spec.has_slots for spec in self.kv_cache_specs.values())

    @property
    def stores_encoder(self) -> bool:
        """The layers' own answer; they agree."""
        return all(spec.stores_encoder for spec in self.kv_cache_specs.values())

    @property
    def num_shared_blocks(self) -> int:
        """The layers' own number; they agree."""
        return max(spec.num_shared_blocks for spec in self.kv_cache_specs.values())

    def max_resident_blocks(self, config: EngineConfig) -> int:
        """The layers' own number; they agree."""
        return max(spec.max_resident_blocks(config) for spec in self.kv_cache_specs.values())

    def max_num_blocks_per_req(self, config: EngineConfig, max_len: int) -> int:
        """The layers' own number; they agree."""
        return max(spec.max_num_blocks_per_req(config, max_len) for spec in self.kv_cache_specs.values())

    def copy_with_new_block_size(self, block_size: int) -> Self:
        """Every layer cut into blocks of ``block_size`` tokens, each by its own rule.

        Raises:
            ValueError: a layer cannot be cut that way.
        """
        specs = {name: spec.copy_with_new_block_size(block_size) for name, spec in self.kv_cache_specs.items()}
        return replace(self, block_size=block_size, kv_cache_specs=specs)

    @classmethod
    def is_uniform_type(cls, kv_cache_specs: Mapping[str, KVCacheSpec]) -> bool:
        """Whether all layers can share one block table, so that `from_specs` wraps them."""
        if any(isinstance(spec, UniformTypeKVCacheSpecs) for spec in kv_cache_specs.values()):
            return False
        return len({(spec.block_size, spec.allocation_key) for spec in kv_cache_specs.values()}) == 1

    @classmethod
    def from_specs(cls, kv_cache_specs: Mapping[str, KVCacheSpec]) -> Self | None:
        """The layers wrapped, or ``None`` if they cannot share one block table. Their order does not matter."""
        if not cls.is_uniform_type(kv_cache_specs):
            return None
        return cls(next(iter(kv_cache_specs.values())).block_size, kv_cache_specs)


def _show_key(key: tuple[Hashable, ...]) -> str:
    return " ".join(part.__name__ if isinstance(part, type) else str(part) for part in key)


def iter_layer_specs(kv_cache_spec: KVCacheSpec) -> Collection[KVCacheSpec]:
    """The layers' own specs in a group's spec: those that are wrapped, or the one itself."""
    if isinstance(kv_cache_spec, UniformTypeKVCacheSpecs):
        return kv_cache_spec.kv_cache_specs.values()
    return (kv_cache_spec,)
