"""The blocks of layers that attend over an encoder's output."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import TypeVar, override

from genericbuilders.cache.block_pool import BlockPool
from genericbuilders.cache.manager import KVCacheManager, NoManagerError, told
from genericbuilders.cache.request_size import UNSIZED, RequestSize
from genericbuilders.config import EngineConfig
from genericbuilders.specs import CrossAttentionSpec, UniformTypeKVCacheSpecs, cdiv, iter_layer_specs

__all__ = ["CrossAttentionManager"]

C = TypeVar("C", bound=CrossAttentionSpec | UniformTypeKVCacheSpecs, default=CrossAttentionSpec)


class CrossAttentionManager(KVCacheManager[C]):
    """A request holds the blocks of its encoder's output, from its start to its end.

    Columns stand for the encoder's tokens, whatever the request's own do. What an encoder was given is no part of a
    request's tokens, so equal tokens prove nothing: prefixes are not found again, in no group of the model.

    Args:
        spec: what one layer's cache holds.
        pool: where the group's blocks come from.
        config: the run's limits, by which the encoder's output is limited if the spec does not say; ``None`` for no
            limit.

    Attributes:
        max_encoder_len: tokens of the longest encoder output; ``None`` if it has no limit.

    Raises:
        NoManagerError: the spec describes no encoder's cache, or takes blocks in a way of its own.
    """

    def __init__(self, spec: C, pool: BlockPool, config: EngineConfig | None = None) -> None:
        crossing = [layer for layer in iter_layer_specs(spec) if isinstance(layer, CrossAttentionSpec)]
        # Layers in a wrapper agree on the allocation key, so the first one speaks for all.
        if not crossing or spec.allocation_key != (CrossAttentionSpec, crossing[0].max_encoder_len):
            raise NoManagerError(
                f"CrossAttentionManager does not serve {told(spec)}: it keeps an encoder's output as "
                "CrossAttentionSpec says"
            )
        longest = crossing[0].max_encoder_len
        if longest is None and config is not None:
            longest = config.max_num_batched_tokens
        self.max_encoder_len: int | None = longest
        super().__init__(spec, pool)
        self._num_encoder_tokens: dict[str, int] = {}

    @property
    @override
    def finds_prefixes(self) -> bool:
        return False

    @property
    @override
    def unit(self) -> str:
        return f"blocks of {self.block_size} encoder tokens"

    @override
    def begin(self, request_id: str, size: RequestSize) -> None:
        self._num_encoder_tokens[request_id] = size.num_encoder_tokens

    @override
    def num_new_blocks_needed(self, request_id: str, num_tokens: int, hit: Sequence[int] = ()) -> int:
        if self._blocks.get(request_id):
            return 0
        return cdiv(self._num_encoder_tokens.get(request_id, 0), self.block_size)

    @override
    def free(self, request_id: str) -> None:
        self._num_encoder_tokens.pop(request_id, None)
        super().free(request_id)

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        if self.max_encoder_len is not None and size.num_encoder_tokens > self.max_encoder_len:
            raise ValueError(
                f"the request's encoder gives {size.num_encoder_tokens} tokens; the cache is made for "
                f"{self.max_encoder_len}, so shorten the input"
            )
        return cdiv(size.num_encoder_tokens, self.block_size)
