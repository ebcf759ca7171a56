"""Quantised caches for the attention layers of a model."""

from __future__ import annotations

from collections.abc import Mapping

from genericbuilders.adapter import AnyAttentionLayer, AttentionAdapter
from genericbuilders.backends.flash_attn import FLASH_ATTN
from genericbuilders.backends.quantised import quantised_backend
from genericbuilders.backends.quantised_base import check_quantisable, quantised_spec
from genericbuilders.config import AttentionLayerConfig
from genericbuilders.model import LoadError, PlacedLayer
from genericbuilders.specs import FullAttentionSpec, KVQuantMode

__all__ = ["quantised_layers", "unquantised"]


def quantised_layers(
    made: Mapping[int, tuple[AnyAttentionLayer, PlacedLayer]], mode: KVQuantMode
) -> Mapping[int, tuple[AnyAttentionLayer, PlacedLayer]]:
    """The same attention layers with caches in ``mode``, on the back end that reads them.

    Args:
        made: those of `genericbuilders_transformers.layers.attention_layers`.
        mode: how to quantise; ``NONE`` changes nothing.

    Raises:
        LoadError: the mode is not served, or lacks a layer's head size, or a layer attends over less than all tokens or
            shapes its scores, for which there is no quantised cache.
    """
    if mode is KVQuantMode.NONE:
        return made
    return {index: _quantised(layer, placed, mode) for index, (layer, placed) in made.items()}


def unquantised(attention: AttentionAdapter | None, mode: KVQuantMode) -> AttentionAdapter | None:
    """The back end to make attention layers on, before `quantised_layers` moves them to the one that quantises.

    Args:
        attention: the back end that is asked for; ``None`` for none.
        mode: how caches are to be quantised.

    Raises:
        LoadError: they are, and on another back end than the one that is asked for; both are named.
    """
    if mode is KVQuantMode.NONE or attention is None:
        return attention
    try:
        adapter = quantised_backend(mode)
    except ValueError as error:
        raise LoadError(str(error)) from None
    if attention is not adapter:
        raise LoadError(
            f"caches in mode {mode.name} are served by {adapter.name!r}, not by {attention.name!r}, which is asked "
            "for; leave one of the two out"
        )
    return None


def _quantised(
    layer: AnyAttentionLayer, placed: PlacedLayer, mode: KVQuantMode
) -> tuple[AnyAttentionLayer, PlacedLayer]:
    spec, heads = placed.kv_cache_spec, layer.config
    if (
        layer.adapter is not FLASH_ATTN
        or not isinstance(spec, FullAttentionSpec)
        or not isinstance(heads, AttentionLayerConfig)
    ):
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
