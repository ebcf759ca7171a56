"""Encoders of transformers (BERT) on the back end `ENCODER_ONLY`: embeddings, and token classification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from transformers import (
    AttentionInterface,
    AutoConfig,
    BertConfig,
    BertForTokenClassification,
    BertModel,
    PretrainedConfig,
)
from typing_extensions import override

from genericbuilders.adapter import AttentionLayer, Step
from genericbuilders.backends.encoder_only import ENCODER_ONLY, EncoderOnlyMetadata
from genericbuilders.config import AttentionLayerConfig
from genericbuilders.model import EncoderModel, LoadError, PlacedLayer, Tokenizer
from genericbuilders.specs import EncoderOnlyAttentionSpec
from genericbuilders_transformers.layers import attention_heads
from genericbuilders_transformers.model import check_weights
from genericbuilders_transformers.tokenizer import HFTokenizer

__all__ = ["LoadedEncoder", "TransformersEncoder", "load_transformers_encoder"]

ENCODER_ATTENTION_NAME = "genericbuilders_encoder"


class _AttentionModule(Protocol):
    layer_idx: int


@dataclass(frozen=True)
class EncoderCalls:
    """One step, as it travels through a model's keyword arguments to each of its attention modules."""

    layers: Mapping[int, AttentionLayer[EncoderOnlyMetadata]]
    step: Step


@dataclass(frozen=True)
class LoadedEncoder:
    """An encoder and its tokenizer."""

    model: TransformersEncoder
    tokenizer: Tokenizer


class TransformersEncoder(EncoderModel):
    """Runs ``hf`` with its attention on the back end `ENCODER_ONLY`.

    Args:
        hf: the model, on its device, in its dtype; changed in place, so that it runs through this class only. It gives
            hidden states, or, with a head that classifies tokens, that head's logits.

    Raises:
        LoadError: the model is a decoder, or its positions are not absolute.
    """

    def __init__(self, hf: BertModel | BertForTokenClassification) -> None:
        config = hf.config
        check_encoder(config)
        hf.eval()
        hf.requires_grad_(False)
        self.hf = hf
        self.vocab_size = config.vocab_size
        self.max_model_len = config.max_position_embeddings
        self.dtype = hf.dtype
        self.device = hf.device
        heads = attention_heads(config)
        layer = AttentionLayerConfig(heads.num_heads, heads.num_kv_heads, heads.head_size, heads.scale, causal=False)
        self.attention_layers: Mapping[int, AttentionLayer[EncoderOnlyMetadata]] = {
            index: ENCODER_ONLY.layer(f"encoder.layer.{index}.attention", layer)
            for index in range(config.num_hidden_layers)
        }
        # Nothing is stored: the block size is that of an empty cache.
        spec = EncoderOnlyAttentionSpec(
            block_size=1, num_kv_heads=heads.num_kv_heads, head_size=heads.head_size, dtype=hf.dtype
        )
        self.layers = [PlacedLayer(each, spec) for each in self.attention_layers.values()]
        AttentionInterface.register(ENCODER_ATTENTION_NAME, _attention)
        hf.set_attn_implementation(ENCODER_ATTENTION_NAME)

    @override
    def forward(self, input_ids: Tensor, positions: Tensor, step: Step) -> Tensor:
        calls = EncoderCalls(self.attention_layers, step)
        if isinstance(self.hf, BertModel):
            return self.hf(
                input_ids=input_ids[None], position_ids=positions[None], encoder_calls=calls
            ).last_hidden_state[0]
        return self.hf(input_ids=input_ids[None], position_ids=positions[None], encoder_calls=calls).logits[0]


def load_transformers_encoder(
    path: Path, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> LoadedEncoder:
    """Load the encoder in folder ``path``, from its own files only.

    Raises:
        LoadError: the folder's files cannot be read as an encoder that this adapter serves.
    """
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        check_encoder(config)
        classifies = "BertForTokenClassification" in (config.architectures or [])
        kind = BertForTokenClassification if classifies else BertModel
        hf, info = kind.from_pretrained(path, dtype=dtype, local_files_only=True, output_loading_info=True)
        check_weights(info)
        tokenizer = HFTokenizer(path)
    except LoadError as error:
        raise LoadError(f"{path}: {error}") from None
    except Exception as error:
        # Damaged files make transformers raise errors of many kinds; each message names its own cause.
        raise LoadError(f"{path} cannot be loaded: {error}") from error
    return LoadedEncoder(TransformersEncoder(hf.to(device or torch.device("cpu"))), tokenizer)


def check_encoder(config: PretrainedConfig) -> None:
    """Refuse what would be computed wrongly.

    Raises:
        LoadError: it is no BERT, is used as a decoder, or its positions are relative.
    """
    if not isinstance(config, BertConfig):
        raise LoadError(f"its settings are a {type(config).__name__}; only BERT's encoders are served")
    if config.is_decoder:
        raise LoadError("it is a BERT decoder, whose tokens see only what came before; only encoders are served")
    # No field of the settings any more, but in those of models that were made with it.
    kind: object = getattr(config, "position_embedding_type", None) or "absolute"
    if kind != "absolute":
        raise LoadError(f"its positions are {kind!r}; only absolute ones are served")


def _attention(
    module: _AttentionModule,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    encoder_calls: EncoderCalls,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Attend within each request.

    Args:
        module: transformers' attention module; its index finds our layer.
        query: ``[1, num_heads, num_tokens, head_size]``.
        key: likewise.
        value: likewise.
        attention_mask: none; the metadata knows the requests.
        encoder_calls: the step.
        **kwargs: what transformers passes besides.

    Returns:
        ``[1, num_tokens, num_heads, head_size]``, and no weights.
    """
    layer = encoder_calls.layers[module.layer_idx]
    out = layer.impl.forward(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        kv_cache=query.new_empty(0),
        attn_metadata=encoder_calls.step[layer],
    )
    return out[None], None
