"""The manager that a spec needs."""

from __future__ import annotations

from typing import overload

from typing_extensions import TypeVar

from genericbuilders.cache.block_pool import BlockPool
from genericbuilders.cache.mamba_manager import MambaManager
from genericbuilders.cache.manager import FullAttentionManager, GroupManager, KVCacheManager, NoManagerError, told
from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, MambaSpec, UniformTypeKVCacheSpecs, iter_layer_specs

__all__ = ["make_manager"]

F = TypeVar("F", bound=FullAttentionSpec)
Z = TypeVar("Z", bound=MambaSpec)


@overload
def make_manager(spec: F, pool: BlockPool) -> FullAttentionManager[F]: ...
@overload
def make_manager(spec: Z, pool: BlockPool) -> MambaManager[Z]: ...
@overload
def make_manager(spec: UniformTypeKVCacheSpecs, pool: BlockPool) -> KVCacheManager[UniformTypeKVCacheSpecs]: ...
@overload
def make_manager(spec: KVCacheSpec, pool: BlockPool) -> GroupManager: ...
def make_manager(spec: KVCacheSpec, pool: BlockPool) -> GroupManager:
    """The manager for caches described by ``spec``, at the spec's own type where the caller knows it.

    A wrapper is looked into: its layers' specs decide.

    Raises:
        NoManagerError: no manager handles blocks as that spec needs; it is named.
    """
    layer = next(iter(iter_layer_specs(spec)))
    if isinstance(layer, FullAttentionSpec) and isinstance(spec, FullAttentionSpec | UniformTypeKVCacheSpecs):
        return FullAttentionManager(spec, pool)
    if isinstance(layer, MambaSpec) and isinstance(spec, MambaSpec | UniformTypeKVCacheSpecs):
        return MambaManager(spec, pool)
    raise NoManagerError(
        f"no cache manager serves {told(spec)}; there are some for specs that keep all blocks, and for states"
    )
