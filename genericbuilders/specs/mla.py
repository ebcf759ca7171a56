"""Specs of multi-head latent attention, which stores one latent vector a token instead of keys and values."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from genericbuilders.specs.arithmetic import require_at_least
from genericbuilders.specs.attention import FullAttentionSpec
from genericbuilders.specs.window import SlidingWindowSpec

__all__ = ["MLAAttentionSpec", "SlidingWindowMLASpec"]


@dataclass(frozen=True, kw_only=True)
class MLAAttentionSpec(FullAttentionSpec):
    """A full cache of latent vectors of ``head_size`` elements; values are read from the same vector.

    Attributes:
        cache_dtype_str: name of the quantised format, for kernels; ``None`` for plain ``dtype``. A packed format gives
            its size in ``state_content_bytes``.
        alignment: bytes that a page's size is rounded up to a multiple of; ``None`` for no rounding.
        model_version: variant of the model whose layout this is; ``None`` for the usual one.
        head_size_v: 0, as values are not stored.

    Raises:
        ValueError: ``alignment`` is below 1 byte.
    """

    cache_dtype_str: str | None = None
    alignment: int | None = None
    model_version: str | None = None
    head_size_v: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alignment is not None:
            require_at_least(self, "alignment", self.alignment, 1, "bytes")

    @property
    def page_alignment_bytes(self) -> int:
        """``alignment``, or 1."""
        return self.alignment or 1


@dataclass(frozen=True, kw_only=True)
class SlidingWindowMLASpec(SlidingWindowSpec):
    """A cache of the last tokens' latent vectors.

    Attributes:
        cache_dtype_str: name of the quantised format, for kernels; ``None`` for plain ``dtype``.
        alignment: bytes that a page's size is rounded up to a multiple of; ``None`` for no rounding.
        model_version: variant of the model whose layout this is; ``None`` for the usual one.
        bounded_replay: whether a window is computed anew instead of being looked up in the prefix cache.
        head_size_v: 0, as values are not stored.

    Raises:
        ValueError: ``alignment`` is below 1 byte.
    """

    cache_dtype_str: str | None = None
    alignment: int | None = None
    model_version: str | None = None
    bounded_replay: bool = False
    head_size_v: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alignment is not None:
            require_at_least(self, "alignment", self.alignment, 1, "bytes")

    @property
    def page_alignment_bytes(self) -> int:
        """``alignment``, or 1."""
        return self.alignment or 1

    @property
    def allocation_key(self) -> tuple[Hashable, ...]:
        """As for any window; a layer that replays its window is cached by other rules."""
        key = super().allocation_key
        return (*key, "bounded_replay") if self.bounded_replay else key
