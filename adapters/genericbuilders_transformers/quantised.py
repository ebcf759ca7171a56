"""Quantised caches for the attention layers of a loaded model."""

from __future__ import annotations

from genericbuilders.adapter import AttentionLayer, BackendAdapter
from genericbuilders.backends.flash_attn import FLASH_ATTN, FlashAttentionMetadata
from genericbuilders.backends.quantised import FP8_KV, INT8_KV, Fp8Builder, Int8Builder, quantised_spec
from genericbuilders.backends.turboquant import TURBOQUANT, TurboQuantBuilder
from genericbuilders.model import LoadError, Model, PlacedLayer
from genericbuilders.specs import FullAttentionSpec, KVQuantMode
from genericbuilders_transformers.model import TransformersModel

__all__ = ["quantise_caches"]

BACKENDS = ((FP8_KV, Fp8Builder), (INT8_KV, Int8Builder), (TURBOQUANT, TurboQuantBuilder))


def quantise_caches(model: Model, mode: KVQuantMode) -> None:
    """Give every attention layer of ``model`` a cache in ``mode``, and the back end that reads it.

    State-space layers keep their states as they are.

    Args:
        model: a `TransformersModel`; changed in place, before an engine is made of it.
        mode: how to quantise; ``NONE`` changes nothing.

    Raises:
        LoadError: the mode is not served or lacks the layers' head size, a layer attends over less than all tokens, or
            no layer attends.
    """
    if mode is KVQuantMode.NONE:
        return
    if not isinstance(model, TransformersModel):
        raise LoadError(f"the caches of a {type(model).__name__} cannot be quantised; only a TransformersModel's can")
    adapter = _backend_of(mode)
    if not model.attention_layers:
        raise LoadError(f"no layer of it caches keys and values, so that there is nothing to quantise to {mode.name}")
    places = {placed.layer: index for index, placed in enumerate(model.layers)}
    layers = list(model.layers)
    attention: dict[int, AttentionLayer[FlashAttentionMetadata]] = {}
    for index, layer in model.attention_layers.items():
        place = places[layer]
        spec = layers[place].kv_cache_spec
        if layer.adapter is not FLASH_ATTN or not isinstance(spec, FullAttentionSpec):
            raise LoadError(
                f"layer {layer.name!r} runs on {layer.adapter.name!r} with a {type(spec).__name__}; only caches of "
                f"full attention can be quantised to {mode.name}"
            )
        try:
            quantised = quantised_spec(spec, mode)
        except ValueError as error:
            raise LoadError(f"layer {layer.name!r}: {error}") from None
        attention[index] = adapter.layer(layer.name, layer.impl.layer)
        layers[place] = PlacedLayer(attention[index], quantised)
    model.attention_layers = attention
    model.layers = layers


def _backend_of(mode: KVQuantMode) -> BackendAdapter[FlashAttentionMetadata, FullAttentionSpec]:
    for adapter, builder in BACKENDS:
        if mode in builder.modes():
            return adapter
    raise LoadError(f"no back end has caches in mode {mode.name}")
