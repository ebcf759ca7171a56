"""Specs of layers that cache keys and values of tokens, for all tokens or for none."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from enum import IntEnum
from fractions import Fraction
from typing import Final, Self

import torch

from genericbuilders.config import EngineConfig
from genericbuilders.specs.arithmetic import cdiv, require_at_least, round_up
from genericbuilders.specs.base import KVCacheSpec

__all__ = [
    "AttentionSpec",
    "CrossAttentionSpec",
    "EncoderOnlyAttentionSpec",
    "FullAttentionSpec",
    "KVQuantMode",
    "RSWASpec",
    "SAME_AS_KEY",
    "SinkFullAttentionSpec",
]

SAME_AS_KEY: Final = -1
"""For ``head_size_v``: a value has as many elements as a key."""


class KVQuantMode(IntEnum):
    """How a cache is quantised, for kernels to choose by. The page size follows from the other fields.

    Numbers from 0 on are vLLM's. Modes that are this library's own have numbers below 0, which vLLM, counting upwards,
    never gives away.
    """

    NONE = 0
    FP8_PER_TENSOR = 1
    INT8_PER_TOKEN_HEAD = 2
    FP8_PER_TOKEN_HEAD = 3
    INT4_PER_TOKEN_HEAD = 4
    NVFP4 = 5
    TURBOQUANT_K8V4 = 6
    TURBOQUANT_4BIT_NC = 7
    TURBOQUANT_K3V4_NC = 8
    TURBOQUANT_3BIT_NC = 9
    NVFP4_DS_MLA = 10
    ULTRAQUANT_4BIT = 11
    TURBOQUANT_2BIT_NC = -1

    @property
    def is_own(self) -> bool:
        """Whether the mode is this library's own, so that vLLM has none like it, whatever it calls its modes."""
        return self < 0


@dataclass(frozen=True, kw_only=True)
class AttentionSpec(KVCacheSpec):
    """A cache of keys and values, one entry a token and key-value head.

    Attributes:
        num_kv_heads: key-value heads.
        head_size: elements in one head of a key.
        dtype: of the cached elements.
        head_size_v: elements in one head of a value; `SAME_AS_KEY` becomes ``head_size``; 0 if values are not stored.
        kv_quant_mode: how the cache is quantised.
        page_size_padded: bytes that a page takes where it is larger than its content; ``None`` if it is not.
        num_head_slots: slots in a page's head axis where packing differs from one slot a key-value head.
        state_content_bytes: bytes of one slot and state where a back end packs them (scales included);
            ``None`` if it stores plain keys and values.
        tokens_per_state: tokens that one stored state stands for; above 1 if tokens are compressed, a fraction if a
            token leaves several states. Divides ``block_size``.

    Raises:
        ValueError: a count is too small, ``tokens_per_state`` does not divide ``block_size``, or ``page_size_padded``
            is below the page's content.
    """

    num_kv_heads: int
    head_size: int
    dtype: torch.dtype
    head_size_v: int = SAME_AS_KEY
    kv_quant_mode: KVQuantMode = KVQuantMode.NONE
    page_size_padded: int | None = None
    num_head_slots: int | None = None
    state_content_bytes: int | None = None
    tokens_per_state: int | Fraction = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, "num_kv_heads", self.num_kv_heads, 1)
        require_at_least(self, "head_size", self.head_size, 1, "elements")
        if self.head_size_v == SAME_AS_KEY:
            object.__setattr__(self, "head_size_v", self.head_size)
        require_at_least(self, "head_size_v", self.head_size_v, 0, "elements")
        if self.num_head_slots is not None:
            require_at_least(self, "num_head_slots", self.num_head_slots, 1)
        if self.state_content_bytes is not None:
            require_at_least(self, "state_content_bytes", self.state_content_bytes, 1, "bytes")
        if self.tokens_per_state <= 0 or self.block_size % self.tokens_per_state:
            raise ValueError(
                f"{type(self).__name__}: tokens_per_state {self.tokens_per_state} does not divide block_size "
                f"{self.block_size}; a block must hold whole states"
            )
        if self.page_size_padded is not None and self.page_size_padded < self.unpadded_page_size_bytes:
            raise ValueError(
                f"{type(self).__name__}: page_size_padded is {self.page_size_padded} bytes; a page of block_size "
                f"{self.block_size} holds {self.unpadded_page_size_bytes} bytes, so it must be at least that"
            )

    @property
    def num_states(self) -> int:
        """States stored in one block."""
        return int(self.block_size / Fraction(self.tokens_per_state))

    @property
    def state_content_size_bytes(self) -> int:
        """Bytes of one state in one head slot: a key and a value."""
        if self.state_content_bytes is not None:
            return self.state_content_bytes
        return (self.head_size + self.head_size_v) * self.dtype.itemsize

    @property
    def unpadded_page_size_bytes(self) -> int:
        """Bytes of content in one page; proportional to ``block_size``."""
        slots = self.num_kv_heads if self.num_head_slots is None else self.num_head_slots
        return slots * self.num_states * self.state_content_size_bytes

    @property
    def page_alignment_bytes(self) -> int:
        """Bytes that a page's size is a multiple of. Unless overridden: 1."""
        return 1

    @property
    def page_size_bytes(self) -> int:
        """The bytes of one page: its content or ``page_size_padded``, rounded up to the alignment."""
        content = self.unpadded_page_size_bytes if self.page_size_padded is None else self.page_size_padded
        return round_up(content, self.page_alignment_bytes)

    def copy_with_new_block_size(self, block_size: int) -> Self:
        """The same cache cut into blocks of ``block_size`` tokens; pages and their padding scale with it.

        Raises:
            ValueError: the padded page is no whole number of bytes at that size, or a field forbids it.
        """
        padded = self.page_size_padded
        if padded is not None:
            padded, rest = divmod(padded * block_size, self.block_size)
            if rest:
                raise ValueError(
                    f"{type(self).__name__}: a padded page of {self.page_size_padded} bytes for {self.block_size} "
                    f"tokens has no whole size for {block_size} tokens; choose page_size_padded after the block size"
                )
        return replace(self, block_size=block_size, page_size_padded=padded)


@dataclass(frozen=True, kw_only=True)
class FullAttentionSpec(AttentionSpec):
    """A cache that keeps every token of a request.

    A layer that attends over less may be *promoted* to it (`promote_to_full`): its blocks are kept to the end, and
    the fields below still say what the layer attends over.

    Attributes:
        sliding_window: tokens that the promoted layer attends over, its own included; ``None`` if it was none.
        attention_chunk_size: tokens in a chunk of the promoted layer; ``None`` if it was none.
        non_causal: whether tokens see what comes after them.

    Raises:
        ValueError: a window or chunk is below 1 token, or both are set.
    """

    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    non_causal: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sliding_window is not None:
            require_at_least(self, "sliding_window", self.sliding_window, 1, "tokens")
        if self.attention_chunk_size is not None:
            require_at_least(self, "attention_chunk_size", self.attention_chunk_size, 1, "tokens")
        if self.sliding_window is not None and self.attention_chunk_size is not None:
            raise ValueError(
                f"{type(self).__name__}: sliding_window {self.sliding_window} and attention_chunk_size "
                f"{self.attention_chunk_size} are both set; a layer attends over one or the other"
            )

    @property
    def allocation_key(self) -> tuple[Hashable, ...]:
        """All blocks are kept: any two such layers agree."""
        return (FullAttentionSpec,)

    def max_resident_blocks(self, config: EngineConfig) -> int:
        """Blocks for every token that a request may have."""
        return cdiv(config.max_model_len, self.block_size)


@dataclass(frozen=True, kw_only=True)
class RSWASpec(FullAttentionSpec):
    """A cache that keeps the whole prompt and a window of the generated tokens (reference sliding window).

    Memory is bounded like a full cache's, since a prompt may be as long as a request. Blocks between the prompt and
    the window are given back, so it never shares a block table with a layer that needs them.

    Attributes:
        rswa_window: generated tokens that are kept.

    Raises:
        ValueError: ``rswa_window`` is below 1 token.
    """

    rswa_window: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, "rswa_window", self.rswa_window, 1, "tokens")

    @property
    def allocation_key(self) -> tuple[Hashable, ...]:
        """Blocks between prompt and window are given back: layers of one window agree."""
        return (RSWASpec, self.rswa_window)


@dataclass(frozen=True, kw_only=True)
class SinkFullAttentionSpec(FullAttentionSpec):
    """A full cache in front of which stand learned sink tokens, the same for every request.

    The sinks' blocks are taken from the pool once (`num_shared_blocks`) and are no part of a request's memory.

    Attributes:
        sink_len: sink tokens.

    Raises:
        ValueError: ``sink_len`` is below 1 token.
    """

    sink_len: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, "sink_len", self.sink_len, 1, "tokens")

    @property
    def allocation_key(self) -> tuple[Hashable, ...]:
        """The sinks' blocks stand in the table: layers of one sink length agree."""
        return (SinkFullAttentionSpec, self.sink_len)

    @property
    def num_shared_blocks(self) -> int:
        """The blocks that hold the sinks."""
        return cdiv(self.sink_len, self.block_size)


@dataclass(frozen=True, kw_only=True)
class CrossAttentionSpec(AttentionSpec):
    """A cache of an encoder's output, filled once a request.

    Attributes:
        max_encoder_len: the most tokens that an encoder gives for one request; ``None`` for the run's
            ``max_num_batched_tokens``, since an encoder runs its input in one piece.

    Raises:
        ValueError: ``max_encoder_len`` is below 1 token.
    """

    max_encoder_len: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_encoder_len is not None:
            require_at_least(self, "max_encoder_len", self.max_encoder_len, 1, "tokens")

    @property
    def allocation_key(self) -> tuple[Hashable, ...]:
        """Blocks follow the encoder's length: layers of one encoder agree."""
        return (CrossAttentionSpec, self.max_encoder_len)

    @property
    def stores_encoder(self) -> bool:
        """It does."""
        return True

    def max_resident_blocks(self, config: EngineConfig) -> int:
        """Blocks for the longest encoder output; the request's own tokens take none."""
        longest = config.max_num_batched_tokens if self.max_encoder_len is None else self.max_encoder_len
        return cdiv(longest, self.block_size)

    def max_num_blocks_per_req(self, config: EngineConfig, max_len: int) -> int:
        """The columns for the longest encoder output, in blocks; ``max_len`` does not matter."""
        return self.max_resident_blocks(config)


@dataclass(frozen=True, kw_only=True)
class EncoderOnlyAttentionSpec(AttentionSpec):
    """A layer that attends within one batch and caches nothing: no blocks, no memory."""

    @property
    def allocation_key(self) -> tuple[Hashable, ...]:
        """No blocks at all: any two such layers agree."""
        return (EncoderOnlyAttentionSpec,)

    def max_resident_blocks(self, config: EngineConfig) -> int:
        """None."""
        return 0

    def max_num_blocks_per_req(self, config: EngineConfig, max_len: int) -> int:
        """None."""
        return 0
