"""What managers have in common whose layers attend over the end of what is computed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import replace

from typing_extensions import TypeVar, override

from genericbuilders.cache.block_pool import BlockPool
from genericbuilders.cache.manager import KVCacheManager, NoManagerError, told
from genericbuilders.cache.request_size import UNSIZED, RequestSize
from genericbuilders.config import EngineConfig
from genericbuilders.specs import KVCacheSpec, cdiv

__all__ = ["TailManager"]

S = TypeVar("S", bound=KVCacheSpec, default=KVCacheSpec)


class TailManager(KVCacheManager[S]):
    """Keeps the blocks from `first_needed_token` on, which moves as tokens are computed.

    As soon as tokens are computed, blocks that lie wholly before it are free for whoever takes blocks next; their
    columns become null. A prefix is found again where the blocks that its next token needs are there, whatever became
    of those before them.

    Args:
        spec: what one layer's cache holds.
        pool: where the group's blocks come from.
        key: the allocation key that the manager's rules are for.
        config: the run's limits, by which a request's blocks are counted before it starts; ``None`` counts as if all
            tokens came in one step.

    Raises:
        NoManagerError: blocks of such a spec are given back by other rules: its ``allocation_key`` is another.
    """

    def __init__(self, spec: S, pool: BlockPool, key: tuple[Hashable, ...] | None, config: EngineConfig | None) -> None:
        if spec.allocation_key != key:
            raise NoManagerError(f"{type(self).__name__} does not serve {told(spec)}: it gives blocks back otherwise")
        super().__init__(spec, pool)
        self._config = config

    @abstractmethod
    def first_needed_token(self, num_computed_tokens: int) -> int:
        """The first token whose block is kept for the token that follows the computed ones. It never falls."""

    @override
    def first_needed_column(self, num_columns: int) -> int:
        return self.first_needed_token(num_columns * self.block_size) // self.block_size

    @override
    def give_back(self, request_id: str, num_computed_tokens: int) -> None:
        self._let_go(request_id, 0, self.first_needed_token(num_computed_tokens) // self.block_size)

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        if self._config is None or num_tokens < 1:
            return cdiv(num_tokens, self.block_size)
        return self.spec.max_resident_blocks(replace(self._config, max_model_len=num_tokens))
