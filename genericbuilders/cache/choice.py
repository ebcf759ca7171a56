"""The manager that a spec needs."""

from __future__ import annotations

from typing import overload

from typing_extensions import TypeVar

from genericbuilders.cache.block_pool import BlockPool
from genericbuilders.cache.chunk_manager import ChunkedLocalManager
from genericbuilders.cache.cross_manager import CrossAttentionManager
from genericbuilders.cache.encoder_only_manager import EncoderOnlyManager
from genericbuilders.cache.full_manager import FullAttentionManager
from genericbuilders.cache.mamba_manager import MambaManager
from genericbuilders.cache.manager import GroupManager, KVCacheManager, NoManagerError, told
from genericbuilders.cache.rswa_manager import RSWAManager
from genericbuilders.cache.sink_manager import SinkManager
from genericbuilders.cache.window_manager import SlidingWindowManager
from genericbuilders.config import EngineConfig
from genericbuilders.specs import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    RSWASpec,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
    iter_layer_specs,
)

__all__ = ["make_manager"]

C = TypeVar("C", bound=CrossAttentionSpec)
E = TypeVar("E", bound=EncoderOnlyAttentionSpec)
F = TypeVar("F", bound=FullAttentionSpec)
K = TypeVar("K", bound=SinkFullAttentionSpec)
L = TypeVar("L", bound=ChunkedLocalAttentionSpec)
R = TypeVar("R", bound=RSWASpec)
W = TypeVar("W", bound=SlidingWindowSpec)
Z = TypeVar("Z", bound=MambaSpec)


@overload
def make_manager(spec: R, pool: BlockPool, config: EngineConfig | None = None) -> RSWAManager[R]: ...
@overload
def make_manager(spec: K, pool: BlockPool, config: EngineConfig | None = None) -> SinkManager[K]: ...
@overload
def make_manager(spec: F, pool: BlockPool, config: EngineConfig | None = None) -> FullAttentionManager[F]: ...
@overload
def make_manager(spec: W, pool: BlockPool, config: EngineConfig | None = None) -> SlidingWindowManager[W]: ...
@overload
def make_manager(spec: L, pool: BlockPool, config: EngineConfig | None = None) -> ChunkedLocalManager[L]: ...
@overload
def make_manager(spec: C, pool: BlockPool, config: EngineConfig | None = None) -> CrossAttentionManager[C]: ...
@overload
def make_manager(spec: E, pool: BlockPool, config: EngineConfig | None = None) -> EncoderOnlyManager[E]: ...
@overload
def make_manager(spec: Z, pool: BlockPool, config: EngineConfig | None = None) -> MambaManager[Z]: ...
@overload
def make_manager(
    spec: UniformTypeKVCacheSpecs, pool: BlockPool, config: EngineConfig | None = None
) -> KVCacheManager[UniformTypeKVCacheSpecs]: ...
@overload
def make_manager(spec: KVCacheSpec, pool: BlockPool, config: EngineConfig | None = None) -> GroupManager: ...
def make_manager(spec: KVCacheSpec, pool: BlockPool, config: EngineConfig | None = None) -> GroupManager:
    """The manager for caches described by ``spec``, at the spec's own type where the caller knows it.

    A wrapper is looked into: its layers' specs decide.

    Args:
        spec: what one layer's cache holds.
        pool: where the group's blocks come from.
        config: the run's limits, by which managers that give blocks back count what a request needs at most; ``None``
            counts as if all tokens came in one step.

    Raises:
        NoManagerError: no manager handles blocks as that spec needs; it is named.
        OutOfBlocksError: the pool is too small for blocks that all requests share.
    """
    layer = next(iter(iter_layer_specs(spec)))
    if isinstance(layer, RSWASpec) and isinstance(spec, RSWASpec | UniformTypeKVCacheSpecs):
        return RSWAManager(spec, pool, config)
    if isinstance(layer, SinkFullAttentionSpec) and isinstance(spec, SinkFullAttentionSpec | UniformTypeKVCacheSpecs):
        return SinkManager(spec, pool)
    if isinstance(layer, FullAttentionSpec) and isinstance(spec, FullAttentionSpec | UniformTypeKVCacheSpecs):
        return FullAttentionManager(spec, pool)
    if isinstance(layer, SlidingWindowSpec) and isinstance(spec, SlidingWindowSpec | UniformTypeKVCacheSpecs):
        return SlidingWindowManager(spec, pool, config)
    if isinstance(layer, ChunkedLocalAttentionSpec) and isinstance(
        spec, ChunkedLocalAttentionSpec | UniformTypeKVCacheSpecs
    ):
        return ChunkedLocalManager(spec, pool, config)
    if isinstance(layer, CrossAttentionSpec) and isinstance(spec, CrossAttentionSpec | UniformTypeKVCacheSpecs):
        return CrossAttentionManager(spec, pool, config)
    if isinstance(layer, EncoderOnlyAttentionSpec) and isinstance(
        spec, EncoderOnlyAttentionSpec | UniformTypeKVCacheSpecs
    ):
        return EncoderOnlyManager(spec, pool)
    if isinstance(layer, MambaSpec) and isinstance(spec, MambaSpec | UniformTypeKVCacheSpecs):
        return MambaManager(spec, pool)
    raise NoManagerError(f"no cache manager serves {told(spec)}; there is one for each kind of spec in this library")
