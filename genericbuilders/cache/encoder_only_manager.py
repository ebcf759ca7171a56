"""No blocks at all, for layers that attend within one batch."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import TypeVar, override

from genericbuilders.cache.block_pool import BlockPool
from genericbuilders.cache.manager import KVCacheManager, NoManagerError, told
from genericbuilders.cache.request_size import UNSIZED, RequestSize
from genericbuilders.specs import EncoderOnlyAttentionSpec, UniformTypeKVCacheSpecs

__all__ = ["EncoderOnlyManager"]

E = TypeVar("E", bound=EncoderOnlyAttentionSpec | UniformTypeKVCacheSpecs, default=EncoderOnlyAttentionSpec)


class EncoderOnlyManager(KVCacheManager[E]):
    """Takes no blocks: rows have no columns. Tokens that were computed before are lost, so no prefix is found again.

    Raises:
        NoManagerError: layers of such a spec do cache something.
    """

    def __init__(self, spec: E, pool: BlockPool) -> None:
        if spec.allocation_key != (EncoderOnlyAttentionSpec,):
            raise NoManagerError(f"EncoderOnlyManager does not serve {told(spec)}: it has no blocks to give")
        super().__init__(spec, pool)

    @property
    @override
    def finds_prefixes(self) -> bool:
        return False

    @override
    def num_new_blocks_needed(self, request_id: str, num_tokens: int, hit: Sequence[int] = ()) -> int:
        return 0

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        return 0
