"""What decides, beside the number of its tokens, which blocks a request holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["UNSIZED", "RequestSize"]


@dataclass(frozen=True)
class RequestSize:
    """What is known of a request before its first block is taken, and never changes.

    Attributes:
        num_prompt_tokens: tokens of the prompt; ``None`` if all tokens are to be taken for it.
        num_encoder_tokens: tokens that an encoder gives for the request.

    Raises:
        ValueError: a number is negative.
    """

    num_prompt_tokens: int | None = None
    num_encoder_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("num_prompt_tokens", "num_encoder_tokens"):
            value: int | None = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} is {value}; it cannot be negative")


UNSIZED: Final = RequestSize()
"""A request without an encoder, whose tokens are all taken for its prompt."""
