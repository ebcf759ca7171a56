"""Models whose decoder attends over an encoder's output: BART and Whisper behind the engine's `Model` interface."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    BartConfig,
    BartForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)
from typing_extensions import override

from genericbuilders.adapter import AttentionAdapter
from genericbuilders.model import ForwardContext, LoadedModel, LoadError, LoadOptions, Model, PlacedLayer
from genericbuilders_transformers.mixers.base import MixerPlace, RunningStep
from genericbuilders_transformers.mixers.decoder import cross_attention, self_attention
from genericbuilders_transformers.model import check_weights, eos_token_ids, no_progress_bar
from genericbuilders_transformers.request_encoders import BartEncoding, WhisperEncoding, start_token_ids
from genericbuilders_transformers.tokenizer import HFTokenizer

__all__ = ["BartServed", "EncoderDecoderModel", "WhisperServed", "load_encoder_decoder"]

_Source: TypeAlias = BartForConditionalGeneration | WhisperForConditionalGeneration
DECODER = "model.decoder"


class EncoderDecoderModel(Model):
    """Runs a decoder of transformers with attention over the encoder's tokens on `CROSS`.

    Attention over its own tokens runs on `FLASH_ATTN`, or on another back end that is asked for.

    The encoder stays transformers' own, and runs once for each request.

    Args:
        hf: the model, on its device, in its dtype; changed in place, so that it runs through this class only.
        max_encoder_len: tokens of the encoder's longest output.
        max_model_len: tokens that the decoder's positions reach.
        block_size: tokens in one cache block.
        eos_token_ids: tokens that end a text.
        attention: the back end of attention over the decoder's own tokens; ``None`` takes `FLASH_ATTN`.

    Raises:
        LoadError: the model has modules that this adapter does not know.
    """

    def __init__(
        self,
        hf: _Source,
        max_encoder_len: int,
        max_model_len: int,
        block_size: int,
        eos_token_ids: frozenset[int],
        attention: AttentionAdapter | None,
    ) -> None:
        config = hf.config
        hf.eval()
        hf.requires_grad_(False)
        self.vocab_size = config.vocab_size
        self.max_model_len = max_model_len
        self.eos_token_ids = eos_token_ids
        self.dtype = hf.dtype
        self.device = hf.device
        self._running = RunningStep()
        placed: list[PlacedLayer] = []
        for index in range(config.decoder_layers):
            place, other = (
                MixerPlace(f"{DECODER}.layers.{index}.{name}", block_size, block_size, "none", hf.dtype, self._running)
                for name in ("self_attn", "encoder_attn")
            )
            own = self_attention(hf.get_submodule(place.name), place, attention)
            cross = cross_attention(hf.get_submodule(other.name), other, max_encoder_len)
            hf.set_submodule(place.name, own)
            hf.set_submodule(other.name, cross)
            placed += [own.placed, cross.placed]
        self.layers = placed

    @override
    def forward(self, input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        if context.encoder_states is None:
            raise RuntimeError("the step brings no encoder states; a runner gives them where Model.encoder is set")
        with self._running.of(context):
            hidden = self.decode(input_ids, positions, context.encoder_states[None])
        return self.logits(hidden[logits_indices])

    @abstractmethod
    def decode(self, input_ids: Tensor, positions: Tensor, encoder_states: Tensor) -> Tensor:
        """The decoder's hidden states, ``[num_tokens, hidden_size]``.

        Args:
            input_ids: ``[num_tokens]``.
            positions: ``[num_tokens]``.
            encoder_states: ``[1, num_encoder_tokens, hidden_size]``, for the rows that start.
        """

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """``[num_logits, vocab_size]`` of hidden states ``[num_logits, hidden_size]``."""


class BartServed(EncoderDecoderModel):
    """BART: its encoder reads text."""

    def __init__(
        self,
        hf: BartForConditionalGeneration,
        *,
        block_size: int,
        eos_token_ids: frozenset[int] = frozenset(),
        attention: AttentionAdapter | None = None,
    ) -> None:
        reach = hf.config.max_position_embeddings
        super().__init__(hf, reach, reach, block_size, eos_token_ids, attention)
        self.hf = hf
        self.encoder = BartEncoding(hf)

    @override
    def decode(self, input_ids: Tensor, positions: Tensor, encoder_states: Tensor) -> Tensor:
        decoder = self.hf.model.decoder
        places = decoder.embed_positions.weight[positions + decoder.embed_positions.offset]
        hidden: Tensor = decoder.layernorm_embedding(decoder.embed_tokens(input_ids) + places)[None]
        for layer in decoder.layers:
            hidden = layer(hidden, encoder_hidden_states=encoder_states)
        return hidden[0]

    @override
    def logits(self, hidden: Tensor) -> Tensor:
        scored: Tensor = self.hf.lm_head(hidden)
        return scored + self.hf.final_logits_bias


class WhisperServed(EncoderDecoderModel):
    """Whisper: its encoder reads spectrograms."""

    def __init__(
        self,
        hf: WhisperForConditionalGeneration,
        *,
        block_size: int,
        eos_token_ids: frozenset[int] = frozenset(),
        attention: AttentionAdapter | None = None,
    ) -> None:
        config = hf.config
        reaches = config.max_source_positions, config.max_target_positions
        super().__init__(hf, *reaches, block_size, eos_token_ids, attention)
        self.hf = hf
        self.encoder = WhisperEncoding(hf)

    @override
    def decode(self, input_ids: Tensor, positions: Tensor, encoder_states: Tensor) -> Tensor:
        decoder = self.hf.model.decoder
        hidden: Tensor = (decoder.embed_tokens(input_ids) + decoder.embed_positions.weight[positions])[None]
        for layer in decoder.layers:
            hidden = layer(hidden, encoder_hidden_states=encoder_states)
        normed: Tensor = decoder.layer_norm(hidden[0])
        return normed

    @override
    def logits(self, hidden: Tensor) -> Tensor:
        scored: Tensor = self.hf.proj_out(hidden)
        return scored


def load_encoder_decoder(path: Path, options: LoadOptions) -> LoadedModel:
    """Load the model in folder ``path``, from its own files only.

    Raises:
        LoadError: the folder's files cannot be read as a model that this adapter serves.
    """
    dtype = options.dtype or (torch.bfloat16 if options.device.type == "cuda" else torch.float32)
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        hf = _load(path, type(config), dtype)
        tokenizer = HFTokenizer(path)
    except LoadError as error:
        raise LoadError(f"{path}: {error}") from None
    except Exception as error:
        # Damaged files make transformers raise errors of many kinds; each message names its own cause.
        raise LoadError(f"{path} cannot be loaded: {error}") from error
    eos = eos_token_ids(hf.config, hf.generation_config) | frozenset(tokenizer.eos_token_ids)
    try:
        hf.to(options.device)
        block_size, attention = options.block_size, options.attention
        if isinstance(hf, BartForConditionalGeneration):
            bart = BartServed(hf, block_size=block_size, eos_token_ids=eos, attention=attention)
            return LoadedModel(bart, tokenizer)
        whisper = WhisperServed(hf, block_size=block_size, eos_token_ids=eos, attention=attention)
        return LoadedModel(whisper, tokenizer)
    except LoadError as error:
        raise LoadError(f"{path}: {error}") from None


def _load(path: Path, settings: type[object], dtype: torch.dtype) -> _Source:
    hf: _Source
    with no_progress_bar():
        if issubclass(settings, BartConfig):
            hf, info = BartForConditionalGeneration.from_pretrained(
                path, dtype=dtype, local_files_only=True, output_loading_info=True
            )
        elif issubclass(settings, WhisperConfig):
            hf, info = WhisperForConditionalGeneration.from_pretrained(
                path, dtype=dtype, local_files_only=True, output_loading_info=True
            )
        else:
            raise LoadError(f"its settings are a {settings.__name__}; BART and Whisper are served")
    check_weights(info)
    start_token_ids(hf.config, hf.generation_config)
    return hf
