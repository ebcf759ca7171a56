"""The blocks of layers that attend over every token."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from typing_extensions import TypeVar, override

from genericbuilders.cache.block_pool import NULL_BLOCK, BlockPool
from genericbuilders.cache.manager import KVCacheManager, NoManagerError, told
from genericbuilders.cache.request_size import UNSIZED, RequestSize
from genericbuilders.specs import FullAttentionSpec, KVCacheSpec, UniformTypeKVCacheSpecs, cdiv, iter_layer_specs

__all__ = ["FullAttentionManager"]

F = TypeVar("F", bound=FullAttentionSpec | UniformTypeKVCacheSpecs, default=FullAttentionSpec)


class FullAttentionManager(KVCacheManager[F]):
    """Every token of a request is kept until the request ends; managers of kindred specs say what they do otherwise.

    A promoted layer is one of these: its window or chunk is its kernel's matter.

    Raises:
        NoManagerError: blocks of such a spec are kept in another way: its ``allocation_key`` is another.
    """

    def __init__(self, spec: F, pool: BlockPool) -> None:
        # The key, not the class: a subclass may give blocks back earlier or share some, and a wrapper's layers decide.
        if spec.allocation_key != self._served_key(next(iter(iter_layer_specs(spec)))):
            raise NoManagerError(f"{type(self).__name__} does not serve {told(spec)}: it keeps blocks in another way")
        super().__init__(spec, pool)

    @classmethod
    def _served_key(cls, layer: KVCacheSpec) -> tuple[Hashable, ...] | None:
        """The allocation key that this manager's rules are for, with the numbers of ``layer``; ``None`` for none."""
        return (FullAttentionSpec,)

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        return cdiv(num_tokens, self.block_size)

    @override
    def num_common_prefix_blocks(self, request_ids: Sequence[str]) -> int:
        if not request_ids:
            return 0
        first, *others = (self.blocks_of(request_id) for request_id in request_ids)
        common = first.index(NULL_BLOCK) if NULL_BLOCK in first else len(first)
        for blocks in others:
            common = min(common, len(blocks))
            if not common or first[0] != blocks[0]:
                return 0
            # Most often all are equal, which a comparison of slices sees at once.
            if first[:common] != blocks[:common]:
                common = next(index for index in range(common) if first[index] != blocks[index])
        return common
