"""Specs of layers that attend over the last tokens only, and give back the blocks before them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from genericbuilders.config import EngineConfig
from genericbuilders.specs.arithmetic import blocks_spanned, cdiv, require_at_least
from genericbuilders.specs.attention import AttentionSpec

__all__ = ["ChunkedLocalAttentionSpec", "SlidingWindowSpec"]


def _resident_blocks(config: EngineConfig, kept_tokens: int, block_size: int, start_multiple: int = 1) -> int:
    # Blocks are given back by computed tokens, so a step holds what is kept and all it may schedule; the drafter's
    # slots come on top of the budget. A request is never longer than max_model_len, and then starts at position 0.
    in_flight = config.max_num_batched_tokens + config.num_speculative_tokens
    spanned = blocks_spanned(kept_tokens + in_flight, block_size, start_multiple)
    return min(spanned, cdiv(config.max_model_len, block_size))


@dataclass(frozen=True, kw_only=True)
class SlidingWindowSpec(AttentionSpec):
    """A cache of the last tokens: each token attends over ``sliding_window`` tokens, its own included.

    Attributes:
        sliding_window: tokens in the window.
        extra_retained_tokens: tokens before the window whose blocks are kept though nothing attends over them.

    Raises:
        ValueError: ``sliding_window`` is below 1 token, or ``extra_retained_tokens`` negative.
    """

    sliding_window: int
    extra_retained_tokens: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, "sliding_window", self.sliding_window, 1, "tokens")
        require_at_least(self, "extra_retained_tokens", self.extra_retained_tokens, 0, "tokens")

    @property
    def allocation_key(self) -> tuple[Hashable, ...]:
        """Blocks are given back by the window: layers of one window agree."""
        return (SlidingWindowSpec, self.sliding_window, self.extra_retained_tokens)

    def max_resident_blocks(self, config: EngineConfig) -> int:
        """Blocks that the window before a step and the step's own tokens can touch, wherever the window starts."""
        kept = self.sliding_window - 1 + self.extra_retained_tokens
        return _resident_blocks(config, kept, self.block_size)


@dataclass(frozen=True, kw_only=True)
class ChunkedLocalAttentionSpec(AttentionSpec):
    """A cache of the current chunk: a token attends over the tokens of its own chunk up to itself.

    Attributes:
        attention_chunk_size: tokens in a chunk; chunks start at its multiples.

    Raises:
        ValueError: ``attention_chunk_size`` is below 1 token.
    """

    attention_chunk_size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, "attention_chunk_size", self.attention_chunk_size, 1, "tokens")

    @property
    def allocation_key(self) -> tuple[Hashable, ...]:
        """Blocks are given back by the chunk: layers of one chunk size agree."""
        return (ChunkedLocalAttentionSpec, self.attention_chunk_size)

    def max_resident_blocks(self, config: EngineConfig) -> int:
        """Blocks that a chunk's computed tokens and a step's own can touch; a chunk may start within a block."""
        kept = self.attention_chunk_size - 1
        return _resident_blocks(config, kept, self.block_size, self.attention_chunk_size)
