"""What each attention layer of a transformers model attends over, read from its settings and its own module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from genericbuilders.adapter import AnyAttentionLayer, AttentionAdapter, AttentionLayer
from genericbuilders.backends.chunked_local import CHUNKED_LOCAL
from genericbuilders.backends.flash_attn import FLASH_ATTN, FlashAttentionMetadata
from genericbuilders.config import AttentionLayerConfig
from genericbuilders.model import LoadError, PlacedLayer
from genericbuilders.specs import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    SlidingWindowSpec,
)

__all__ = [
    "SERVED_LAYER_TYPES",
    "AttentionLayers",
    "attention_heads",
    "attention_layers",
    "layer_configs",
    "layer_reach",
]

SERVED_LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention")
"""What transformers calls the kinds of attention that are served."""


@dataclass(frozen=True)
class AttentionLayers:
    """The layers of a model that attend over caches of their own, by their place in it.

    Attributes:
        made: all of them: for running them, and for the engine.
        flash: those of `FLASH_ATTN`, at their type.
    """

    made: Mapping[int, tuple[AnyAttentionLayer, PlacedLayer]]
    flash: Mapping[int, AttentionLayer[FlashAttentionMetadata]]


def attention_heads(config: PretrainedConfig) -> AttentionLayerConfig:
    """The heads of a model's attention layers.

    Raises:
        LoadError: the settings name no heads, or heads that do not fit together.
    """
    num_heads: int | None = getattr(config, "num_attention_heads", None)
    if num_heads is None:
        raise LoadError("it has layers that attend, but its settings name no num_attention_heads")
    num_kv_heads: int = getattr(config, "num_key_value_heads", None) or num_heads
    head_size: int = getattr(config, "head_dim", None) or config.hidden_size // num_heads
    soft_cap: float | None = getattr(config, "attn_logit_softcapping", None)
    try:
        return AttentionLayerConfig(num_heads, num_kv_heads, head_size, head_size**-0.5, logits_soft_cap=soft_cap)
    except ValueError as error:
        raise LoadError(f"its attention layers: {error}") from None


def layer_reach(config: PretrainedConfig, index: int) -> tuple[int | None, int | None]:
    """The window and the chunk of the layer at ``index``, in tokens; ``None`` for each that it does not have.

    Raises:
        LoadError: the layer's type is not served, or its settings do not say how far it sees.
    """
    layer_types: Sequence[str] | None = getattr(config, "layer_types", None)
    window: int | None = getattr(config, "sliding_window", None)
    if not layer_types:
        return window, None
    kind = layer_types[index]
    if kind == "full_attention":
        return None, None
    chunk: int | None = getattr(config, "attention_chunk_size", None)
    if kind == "sliding_attention" and window is not None:
        return window, None
    if kind == "chunked_attention" and chunk is not None:
        return None, chunk
    raise LoadError(
        f"layer {index} is of type {kind!r}, with sliding_window {window} and attention_chunk_size {chunk}; served are "
        f"{', '.join(SERVED_LAYER_TYPES)}"
    )


def attention_layers(
    hf: PreTrainedModel,
    indices: Iterable[int],
    heads: AttentionLayerConfig,
    block_size: int,
    attention: AttentionAdapter | None = None,
) -> AttentionLayers:
    """The layers that attend.

    Args:
        hf: the model.
        indices: the places of its attention layers.
        heads: what they are made of.
        block_size: tokens in one cache block.
        attention: the back end of all but those that attend within chunks; ``None`` takes `FLASH_ATTN`.

    Raises:
        LoadError: a layer is of a type that is not served, or chunks are no multiple of the block size.
    """
    made: dict[int, tuple[AnyAttentionLayer, PlacedLayer]] = {}
    flash: dict[int, AttentionLayer[FlashAttentionMetadata]] = {}
    for index, (name, config) in layer_configs(hf, indices, heads).items():
        layer: AnyAttentionLayer
        if config.attention_chunk_size is not None:
            layer = CHUNKED_LOCAL.layer(name, config)
        elif attention is None or attention is FLASH_ATTN:
            layer = flash[index] = FLASH_ATTN.layer(name, config)
        else:
            layer = attention.layer(name, config)
        made[index] = layer, PlacedLayer(layer, _spec(config, block_size, hf.dtype))
    return AttentionLayers(made, flash)


def layer_configs(
    hf: PreTrainedModel, indices: Iterable[int], heads: AttentionLayerConfig
) -> Mapping[int, tuple[str, AttentionLayerConfig]]:
    """The names of layers that attend, and what each is made of, by their place in the model.

    Args:
        hf: the model.
        indices: the places of the layers.
        heads: what all are made of.

    Raises:
        LoadError: a layer is of a type that is not served.
    """
    modules = _attention_modules(hf)
    found: dict[int, tuple[str, AttentionLayerConfig]] = {}
    for index in indices:
        window, chunk = layer_reach(hf.config, index)
        name, module = modules.get(index, (f"model.layers.{index}.self_attn", None))
        sinks: Tensor | None = getattr(module, "sinks", None)
        scale: float = getattr(module, "scaling", heads.scale)
        layer = replace(
            heads,
            scale=scale,
            sliding_window=window,
            attention_chunk_size=chunk,
            sinks=None if sinks is None else sinks.detach().to(torch.float32),
        )
        found[index] = name, layer
    return found


def _attention_modules(hf: PreTrainedModel) -> Mapping[int, tuple[str, nn.Module]]:
    """Attention modules by their place: those that know it, and the factor on their scores."""
    return {
        index: (name, module)
        for name, module in _modules(hf)
        if hasattr(module, "scaling") and isinstance(index := getattr(module, "layer_idx", None), int)
    }


def _modules(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        yield prefix + name, child
        yield from _modules(child, f"{prefix}{name}.")


def _spec(layer: AttentionLayerConfig, block_size: int, dtype: torch.dtype) -> AttentionSpec:
    if layer.sliding_window is not None:
        return SlidingWindowSpec(
            block_size=block_size,
            num_kv_heads=layer.num_kv_heads,
            head_size=layer.head_size,
            dtype=dtype,
            sliding_window=layer.sliding_window,
        )
    if layer.attention_chunk_size is not None:
        if layer.attention_chunk_size % block_size:
            raise LoadError(
                f"its chunks of {layer.attention_chunk_size} tokens are no multiple of the block size {block_size}; "
                "choose a block size that divides them"
            )
        return ChunkedLocalAttentionSpec(
            block_size=block_size,
            num_kv_heads=layer.num_kv_heads,
            head_size=layer.head_size,
            dtype=dtype,
            attention_chunk_size=layer.attention_chunk_size,
        )
    return FullAttentionSpec(
        block_size=block_size, num_kv_heads=layer.num_kv_heads, head_size=layer.head_size, dtype=dtype
    )
