"""What a request gives an encoder, and what the engine asks of that encoder."""

from __future__ import annotations

import hashlib
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

__all__ = ["EncoderFeatures", "EncoderInput", "EncoderTokens", "RequestEncoder"]


@dataclass(frozen=True)
class EncoderTokens:
    """Tokens for an encoder that reads text.

    Attributes:
        token_ids: those of one text, special tokens included.
    """

    token_ids: tuple[int, ...]

    def digest(self) -> bytes:
        """32 bytes that stand for the tokens; tokens and features never share one."""
        return hashlib.sha256(b"tokens" + struct.pack(f"<{len(self.token_ids)}q", *self.token_ids)).digest()


@dataclass(frozen=True, eq=False)
class EncoderFeatures:
    """Features for an encoder that reads something else than text, such as a spectrogram.

    Attributes:
        features: ``[num_features, num_frames]``; a copy of what was given, so that changing that changes no request.
    """

    features: Tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", self.features.detach().clone(memory_format=torch.contiguous_format))

    def digest(self) -> bytes:
        """32 bytes that stand for the features, their shape and their dtype."""
        told = f"features {self.features.dtype} {tuple(self.features.shape)} ".encode()
        return hashlib.sha256(told + self.features.cpu().flatten().view(torch.uint8).numpy().tobytes()).digest()


EncoderInput: TypeAlias = EncoderTokens | EncoderFeatures
"""What one request gives its encoder."""


class RequestEncoder(ABC):
    """The part of a model that reads a request's whole input, once, for its decoder to attend over.

    Attributes:
        max_tokens: the most tokens that it gives for one request.
        reads_text: whether it takes the tokens of a text (`EncoderTokens`).
        start_token_ids: what a decoder is fed first, where a request has no prompt of its own for it.
    """

    max_tokens: int
    reads_text: bool
    start_token_ids: tuple[int, ...]

    @abstractmethod
    def num_tokens(self, given: EncoderInput) -> int:
        """The tokens that it gives for ``given``; at least 1.

        Raises:
            ValueError: it cannot read this; the message says why.
        """

    @abstractmethod
    def encode(self, given: Sequence[EncoderInput]) -> Tensor:
        """The encoder's output for several requests.

        Args:
            given: inputs that `num_tokens` has taken.

        Returns:
            ``[num_encoder_tokens, width]``, one request behind the other; ``[0, width]`` for none.
        """
