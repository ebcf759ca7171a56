"""The blocks of layers in front of whose tokens stand learned sinks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from typing_extensions import TypeVar, override

from genericbuilders.cache.block_pool import BlockPool
from genericbuilders.cache.full_manager import FullAttentionManager
from genericbuilders.specs import KVCacheSpec, SinkFullAttentionSpec, UniformTypeKVCacheSpecs

__all__ = ["SinkManager"]

K = TypeVar("K", bound=SinkFullAttentionSpec | UniformTypeKVCacheSpecs, default=SinkFullAttentionSpec)


class SinkManager(FullAttentionManager[K]):
    """As full attention, behind blocks of sinks that all requests share.

    Their columns stand at the front of every row: a request's token at ``position`` is in column
    ``len(sink_blocks) + position // block_size``. No request holds them, and they are neither freed nor hashed.

    Attributes:
        sink_blocks: the sinks' blocks; reserved when the manager is made, for the model to fill.

    Raises:
        NoManagerError: the spec describes no sinks, or keeps blocks in a way of its own.
        OutOfBlocksError: the pool has no block beside the sinks'.
    """

    def __init__(self, spec: K, pool: BlockPool) -> None:
        super().__init__(spec, pool)
        self.sink_blocks: tuple[int, ...] = tuple(pool.reserve(spec.num_shared_blocks))

    @classmethod
    @override
    def _served_key(cls, layer: KVCacheSpec) -> tuple[Hashable, ...] | None:
        return (SinkFullAttentionSpec, layer.sink_len) if isinstance(layer, SinkFullAttentionSpec) else None

    @property
    @override
    def shared_blocks(self) -> Sequence[int]:
        return self.sink_blocks

    @override
    def blocks_of(self, request_id: str) -> Sequence[int]:
        own = self._blocks.get(request_id)
        return () if own is None else (*self.sink_blocks, *own)
