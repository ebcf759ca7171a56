"""What the engine asks of a model, and of whoever loads one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from genericbuilders.adapter import AttentionAdapter, Layer, Step
from genericbuilders.request_encoder import RequestEncoder
from genericbuilders.specs import KVCacheSpec, KVQuantMode, MambaCacheMode

__all__ = [
    "EncoderModel",
    "ForwardContext",
    "LoadError",
    "LoadOptions",
    "LoadedModel",
    "Model",
    "ModelLoader",
    "PlacedLayer",
    "Tokenizer",
]


class LoadError(ValueError):
    """A model cannot be loaded; the message says why and what to do."""


@dataclass(frozen=True)
class PlacedLayer:
    """A layer of a model, with what its cache holds."""

    layer: Layer
    kv_cache_spec: KVCacheSpec


@dataclass(frozen=True)
class ForwardContext:
    """What a model's layers need beside activations.

    Attributes:
        step: this batch's metadata.
        kv_caches: each layer's cache.
        encoder_states: ``[num_encoder_tokens, width]``: what the encoder gave for the rows that start with this batch,
            one behind the other; ``None`` for a model without one.
        skips_tokens: whether layers of a `fast_prefill` back end run for the tokens whose logits are wanted alone; such
            a model gives them no other.
    """

    step: Step
    kv_caches: Mapping[Layer, Tensor]
    encoder_states: Tensor | None = None
    skips_tokens: bool = False


class Model(ABC):
    """A decoder that runs on paged caches.

    Attributes:
        layers: every layer that has a cache or shares another's, in the order in which they run.
        vocab_size: number of logits.
        max_model_len: tokens that its positions reach.
        eos_token_ids: tokens that end a text.
        dtype: of weights and activations.
        device: where it runs.
        encoder: what reads a request's whole input once, before the decoder's first step; ``None`` if it has none.
    """

    layers: Sequence[PlacedLayer]
    vocab_size: int
    max_model_len: int
    eos_token_ids: frozenset[int]
    dtype: torch.dtype
    device: torch.device
    encoder: RequestEncoder | None = None

    @abstractmethod
    def forward(self, input_ids: Tensor, positions: Tensor, context: ForwardContext, logits_indices: Tensor) -> Tensor:
        """Run a batch.

        Args:
            input_ids: ``[num_tokens]`` int64, all rows' new tokens one behind the other.
            positions: ``[num_tokens]`` int64, each token's place in its sequence.
            context: metadata and caches.
            logits_indices: ``[num_logits]`` int64, the tokens whose logits are wanted.

        Returns:
            ``[num_logits, vocab_size]``.
        """


class EncoderModel(ABC):
    """A model whose requests are encoded whole, each in one batch: it caches nothing and generates nothing.

    Attributes:
        layers: every layer that attends.
        vocab_size: tokens that it knows.
        max_model_len: tokens that its positions reach.
        dtype: of weights and activations.
        device: where it runs.
    """

    layers: Sequence[PlacedLayer]
    vocab_size: int
    max_model_len: int
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def forward(self, input_ids: Tensor, positions: Tensor, step: Step) -> Tensor:
        """Run a batch of whole requests.

        Args:
            input_ids: ``[num_tokens]`` int64, all requests' tokens one behind the other.
            positions: ``[num_tokens]`` int64, each token's place in its request.
            step: this batch's metadata.

        Returns:
            ``[num_tokens, width]``: hidden states, or a classifier's logits.
        """


class Tokenizer(Protocol):
    """Text to token ids and back."""

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, with the special tokens that the model expects in front."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ``token_ids``, without special tokens."""
        ...


@dataclass(frozen=True)
class LoadOptions:
    """How to load a model.

    Attributes:
        device: where it shall run.
        dtype: of weights and activations; ``None`` takes float32 on CPU and bfloat16 on CUDA.
        block_size: tokens in one cache block.
        mamba_cache_mode: which states of a request are kept, for models with state-space layers; see `MambaSpec`. Only
            where states at block ends are kept, requests with the same beginning share them.
        mamba_block_size: tokens between two such states; ``None`` takes ``block_size``.
        kv_cache_dtype: how the caches of attention layers are quantised; ``NONE`` keeps them in ``dtype``.
        fast_prefill: run layers that share another's cache for the tokens alone whose logits are wanted. It changes no
            result; without it they run for all tokens.
        attention: the back end of layers that attend over plain keys and values; ``None``: the loader's choice.
    """

    device: torch.device
    dtype: torch.dtype | None = None
    block_size: int = 16
    mamba_cache_mode: MambaCacheMode = "none"
    mamba_block_size: int | None = None
    kv_cache_dtype: KVQuantMode = KVQuantMode.NONE
    fast_prefill: bool = True
    attention: AttentionAdapter | None = None


@dataclass(frozen=True)
class LoadedModel:
    """A model and its tokenizer."""

    model: Model
    tokenizer: Tokenizer


class ModelLoader(ABC):
    """Loads the models of one other project."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in messages."""

    @abstractmethod
    def architectures(self) -> Sequence[str]:
        """The architectures, as ``config.json`` names them, that it can load."""

    def default_model(self, progress: Callable[[str], None]) -> Path | None:
        """The folder of a small model to try things with, brought here if need be; ``None`` if it has none.

        Args:
            progress: told, in a few words, what is going on.

        Raises:
            LoadError: it has one but cannot bring it.
        """
        return None

    @abstractmethod
    def load(self, path: Path, options: LoadOptions) -> LoadedModel:
        """Load the model in folder ``path``.

        Raises:
            LoadError: the folder does not hold a model that this loader can load.
        """
