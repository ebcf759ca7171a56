"""Quantised caches for the attention layers of a model."""

from __future__ import annotations

from collections.abc import Mapping

from genericbuilders.adapter import AttentionLayer
from genericbuilders.backends.flash_attn import FLASH_ATTN, FlashAttentionMetadata
from genericbuilders.backends.quantised import quantised_backend
from genericbuilders.backends.quantised_base import check_quantisable, quantised_spec
from genericbuilders.model import LoadError, PlacedLayer
from genericbuilders.specs import FullAttentionSpec, KVQuantMode

__all__ = ["quantised_layers"]


def quantised_layers(
    made: Mapping[int, tuple[AttentionLayer[FlashAttentionMetadata], PlacedLayer]], mode: KVQuantMode
) -> Mapping[int, tuple[AttentionLayer[FlashAttentionMetadata], PlacedLayer]]:
    """The same attention layers with caches in ``mode``, on the back end that reads them.

    Args:
        made: what `genericbuilders_transformers.layers.attention_layers` made.
        mode: how to quantise; ``NONE`` changes nothing.

    Raises:
        LoadError: the mode is not served, or lacks a layer's head size, or a layer attends over less than all tokens or
            shapes its scores, for which there is no quantised cache.
    """
    if mode is KVQuantMode.NONE:
        return made
    return {index: _quantised(layer, placed, mode) for index, (layer, placed) in made.items()}


def _quantised(
    layer: AttentionLayer[FlashAttentionMetadata], placed: PlacedLayer, mode: KVQuantMode
) -> tuple[AttentionLayer[FlashAttentionMetadata], PlacedLayer]:
    spec, heads = placed.kv_cache_spec, layer.impl.layer
    if layer.adapter is not FLASH_ATTN or not isinstance(spec, FullAttentionSpec):
        raise LoadError(
            f"layer {layer.name!r} runs on {layer.adapter.name!r} with a {type(spec).__name__}; only caches of full "
            f"attention can be quantised to {mode.name}"
        )
    try:
        adapter = quantised_backend(mode)
        check_quantisable(layer.name, heads)
        quantised = quantised_spec(spec, mode)
    except ValueError as error:
        raise LoadError(f"the cache of layer {layer.name!r} cannot be quantised: {error}") from None
    made = adapter.layer(layer.name, heads)
    return made, PlacedLayer(made, quantised)
