"""The blocks of layers that attend over the whole prompt and a window of what was generated."""

from __future__ import annotations

from collections.abc import Hashable

from typing_extensions import TypeVar, override

from genericbuilders.cache.block_pool import BlockPool
from genericbuilders.cache.full_manager import FullAttentionManager
from genericbuilders.cache.request_size import UNSIZED, RequestSize
from genericbuilders.config import EngineConfig
from genericbuilders.specs import KVCacheSpec, RSWASpec, UniformTypeKVCacheSpecs, blocks_spanned, cdiv, iter_layer_specs

__all__ = ["RSWAManager"]

R = TypeVar("R", bound=RSWASpec | UniformTypeKVCacheSpecs, default=RSWASpec)


class RSWAManager(FullAttentionManager[R]):
    """A request's prompt is kept to its end, and of its generated tokens the last ``rswa_window``.

    Blocks that lie wholly between both are given back as soon as tokens are computed, and their columns become null.

    A generated token sees less than the same token in a prompt, so that what follows from it differs, too. Requests
    therefore share blocks of prompts only, and a prompt never starts on what was generated.

    Args:
        spec: what one layer's cache holds.
        pool: where the group's blocks come from.
        config: the run's limits, by which a request's blocks are counted before it starts; ``None`` counts as if all
            tokens came in one step.

    Attributes:
        rswa_window: generated tokens that are kept, the attending one included.

    Raises:
        NoManagerError: the spec describes no such window, or keeps blocks in a way of its own.
    """

    def __init__(self, spec: R, pool: BlockPool, config: EngineConfig | None = None) -> None:
        super().__init__(spec, pool)
        windows = [layer.rswa_window for layer in iter_layer_specs(spec) if isinstance(layer, RSWASpec)]
        self.rswa_window: int = windows[0]
        self._config = config
        self._num_prompt_tokens: dict[str, int] = {}

    @classmethod
    @override
    def _served_key(cls, layer: KVCacheSpec) -> tuple[Hashable, ...] | None:
        return (RSWASpec, layer.rswa_window) if isinstance(layer, RSWASpec) else None

    @override
    def num_kept_columns(self, request_id: str) -> int:
        return cdiv(self._num_prompt_tokens.get(request_id, 0), self.block_size)

    @override
    def begin(self, request_id: str, size: RequestSize) -> None:
        if size.num_prompt_tokens is not None:
            self._num_prompt_tokens[request_id] = size.num_prompt_tokens

    @override
    def max_shared_tokens(self, size: RequestSize) -> int | None:
        return size.num_prompt_tokens

    @override
    def give_back(self, request_id: str, num_computed_tokens: int) -> None:
        prompt = self._num_prompt_tokens.get(request_id)
        if prompt is not None:
            first = max(prompt, num_computed_tokens + 1 - self.rswa_window)
            self._let_go(request_id, cdiv(prompt, self.block_size), first // self.block_size)

    @override
    def free(self, request_id: str) -> None:
        self._num_prompt_tokens.pop(request_id, None)
        super().free(request_id)

    @override
    def blocks_for_longest(self, num_tokens: int, size: RequestSize = UNSIZED) -> int:
        longest = cdiv(num_tokens, self.block_size)
        if self._config is None or size.num_prompt_tokens is None:
            return longest
        in_flight = self._config.max_num_batched_tokens + self._config.num_speculative_tokens
        window = blocks_spanned(self.rswa_window - 1 + in_flight, self.block_size)
        return min(longest, cdiv(size.num_prompt_tokens, self.block_size) + window)
