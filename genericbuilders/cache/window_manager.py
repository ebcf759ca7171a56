"""The blocks of layers that attend over a sliding window."""

from __future__ import annotations

from typing_extensions import TypeVar, override

from genericbuilders.cache.block_pool import BlockPool
from genericbuilders.cache.tail_manager import TailManager
from genericbuilders.config import EngineConfig
from genericbuilders.specs import SlidingWindowMLASpec, SlidingWindowSpec, UniformTypeKVCacheSpecs, iter_layer_specs

__all__ = ["SlidingWindowManager"]

W = TypeVar("W", bound=SlidingWindowSpec | UniformTypeKVCacheSpecs, default=SlidingWindowSpec)


class SlidingWindowManager(TailManager[W]):
    """The last tokens of a request are kept: the next one's window, and ``extra_retained_tokens`` before it.

    Keys and values and latent vectors (`SlidingWindowMLASpec`) alike. A window that is to be replayed instead of being
    looked up (``bounded_replay``) is never found again, so that the whole model computes prefixes anew.

    Attributes:
        sliding_window: tokens in the window, the attending one included.
        extra_retained_tokens: tokens before it that are kept, too.
        bounded_replay: whether the window is not looked up.

    Raises:
        NoManagerError: the spec describes no window, or gives blocks back in a way of its own.
    """

    def __init__(self, spec: W, pool: BlockPool, config: EngineConfig | None = None) -> None:
        windows = [layer for layer in iter_layer_specs(spec) if isinstance(layer, SlidingWindowSpec)]
        # Layers in a wrapper agree on the allocation key, so the first one speaks for all.
        window, extra = (windows[0].sliding_window, windows[0].extra_retained_tokens) if windows else (1, 0)
        self.sliding_window: int = window
        self.extra_retained_tokens: int = extra
        self.bounded_replay: bool = any(
            layer.bounded_replay for layer in windows if isinstance(layer, SlidingWindowMLASpec)
        )
        key = (SlidingWindowSpec, window, extra, *(("bounded_replay",) if self.bounded_replay else ()))
        super().__init__(spec, pool, key if windows else None, config)

    @property
    @override
    def finds_prefixes(self) -> bool:
        return not self.bounded_replay

    @override
    def first_needed_token(self, num_computed_tokens: int) -> int:
        return max(0, num_computed_tokens + 1 - self.sliding_window - self.extra_retained_tokens)
