"""Encoders of transformers behind the engine's `RequestEncoder`: BART's of text, Whisper's of spectrograms."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    WhisperConfig,
    WhisperForConditionalGeneration,
)
from typing_extensions import override

from genericbuilders.engine.request import unknown_token_ids
from genericbuilders.model import LoadError
from genericbuilders.request_encoder import EncoderFeatures, EncoderInput, EncoderTokens, RequestEncoder

__all__ = ["BartEncoding", "WhisperEncoding", "start_token_ids"]


class BartEncoding(RequestEncoder):
    """Reads token ids. Inputs of one length run together, so that none is padded and no other changes it."""

    def __init__(self, hf: BartForConditionalGeneration) -> None:
        self._encoder = hf.model.encoder
        self._device = hf.device
        self._vocab_size = hf.config.vocab_size
        self._empty: Tensor = torch.empty(0, hf.config.d_model, dtype=hf.dtype, device=hf.device)
        self.max_tokens = hf.config.max_position_embeddings
        self.reads_text = True
        self.start_token_ids = start_token_ids(hf.config, hf.generation_config)

    @override
    def num_tokens(self, given: EncoderInput) -> int:
        token_ids = _tokens(given)
        if not 1 <= len(token_ids) <= self.max_tokens:
            raise ValueError(
                f"its encoder input has {len(token_ids)} tokens; it must have 1 to {self.max_tokens}, which the "
                "encoder's positions reach"
            )
        if unknown := unknown_token_ids(token_ids, self._vocab_size):
            raise ValueError(
                f"its encoder input has token ids {unknown[:5]}; the model knows 0 to {self._vocab_size - 1}"
            )
        return len(token_ids)

    @override
    def encode(self, given: Sequence[EncoderInput]) -> Tensor:
        rows = [_tokens(each) for each in given]
        found: dict[int, Tensor] = {}
        for length in sorted({len(row) for row in rows}):
            together = [index for index, row in enumerate(rows) if len(row) == length]
            input_ids = torch.tensor([rows[index] for index in together], dtype=torch.int64, device=self._device)
            found |= zip(together, self._encoder(input_ids=input_ids).last_hidden_state, strict=True)
        return torch.cat([self._empty, *(found[index] for index in range(len(rows)))])


class WhisperEncoding(RequestEncoder):
    """Reads log-mel spectrograms, all of one size, as transformers' feature extractor makes them."""

    def __init__(self, hf: WhisperForConditionalGeneration) -> None:
        config, encoder = hf.config, hf.model.encoder
        self._encoder = encoder
        self._device, self._dtype = hf.device, hf.dtype
        self._shape = (
            config.num_mel_bins,
            config.max_source_positions * encoder.conv1.stride[0] * encoder.conv2.stride[0],
        )
        self._empty: Tensor = torch.empty(0, config.d_model, dtype=hf.dtype, device=hf.device)
        self.max_tokens = config.max_source_positions
        self.reads_text = False
        self.start_token_ids = start_token_ids(config, hf.generation_config)

    @override
    def num_tokens(self, given: EncoderInput) -> int:
        features = _features(given)
        if features.shape != self._shape:
            raise ValueError(
                f"its encoder input has the shape {tuple(features.shape)}; the encoder takes {self._shape}: mel bins "
                "and frames, padded or cut as transformers' feature extractor does"
            )
        if not features.is_floating_point():
            raise ValueError(f"its encoder input is {features.dtype}; the encoder takes floating-point features")
        return self.max_tokens

    @override
    def encode(self, given: Sequence[EncoderInput]) -> Tensor:
        if not given:
            return self._empty
        features = torch.stack([_features(each).to(self._device, self._dtype) for each in given])
        return self._encoder(input_features=features).last_hidden_state.flatten(0, 1)


def start_token_ids(config: BartConfig | WhisperConfig, generation: GenerationConfig | None) -> tuple[int, ...]:
    """What transformers' ``generate`` feeds a decoder first: its start token, and a first one that is forced.

    Raises:
        LoadError: the settings name no start token.
    """
    start = generation.decoder_start_token_id if generation else None
    if start is None:
        start = config.decoder_start_token_id
    if start is None:
        raise LoadError("its settings name no decoder_start_token_id, so its decoder has nothing to start with")
    forced = generation.forced_bos_token_id if generation else None
    return (start,) if forced is None else (start, forced)


def _tokens(given: EncoderInput) -> tuple[int, ...]:
    if not isinstance(given, EncoderTokens):
        raise ValueError(f"its encoder input is {type(given).__name__}; the encoder reads text: give EncoderTokens")
    return given.token_ids


def _features(given: EncoderInput) -> Tensor:
    if not isinstance(given, EncoderFeatures):
        raise ValueError(
            f"its encoder input is {type(given).__name__}; the encoder reads features: give EncoderFeatures"
        )
    return given.features
