"""Models whose attention layers are put on other caches, on the same weights: quantised ones, and float ones like them."""

from __future__ import annotations

from collections.abc import Mapping

from quantised_caches import make_codec
from torch import Tensor
from typing_extensions import override

from genericbuilders.adapter import AnyAttentionLayer, BackendAdapter
from genericbuilders.backends.flash_attn import (
    FlashAttentionImpl,
    FlashAttentionMetadata,
    FlashAttentionMetadataBuilder,
)
from genericbuilders.config import AttentionLayerConfig
from genericbuilders.kernels.quant.slots import SlotCodec
from genericbuilders.model import PlacedLayer
from genericbuilders.rotary import Rotary, apply_rotary
from genericbuilders.specs import KVQuantMode
from genericbuilders_transformers.model import TransformersModel
from genericbuilders_transformers.quantised import quantised_layers

__all__ = ["RoundTripImpl", "StoringImpl", "attention_of", "heads_of", "put_layers", "quantise", "round_trip"]

Placed = tuple[AnyAttentionLayer, PlacedLayer]


def attention_of(model: TransformersModel) -> Mapping[int, Placed]:
    """A model's attention layers by their place."""
    placed = {each.layer: each for each in model.layers}
    return {index: (layer, placed[layer]) for index, layer in model.attention_layers.items()}


def heads_of(layer: AnyAttentionLayer) -> AttentionLayerConfig:
    """What an attention layer is made of.

    Raises:
        TypeError: its settings are others.
    """
    if not isinstance(layer.config, AttentionLayerConfig):
        raise TypeError(f"layer {layer.name!r} is made of a {type(layer.config).__name__}")
    return layer.config


def put_layers(model: TransformersModel, made: Mapping[int, Placed]) -> None:
    """Give a model other attention layers of the same names, before an engine is made of it."""
    by_name = {layer.name: placed for layer, placed in made.values()}
    model.layers = [by_name.get(each.layer.name, each) for each in model.layers]
    model.attention_layers = {index: layer for index, (layer, _) in made.items()}


def quantise(model: TransformersModel, mode: KVQuantMode) -> None:
    """Quantise the caches of a model that has plain ones."""
    put_layers(model, quantised_layers(attention_of(model), mode))


class StoringImpl(FlashAttentionImpl):
    """Attends over a plain cache, into which goes what `stored` makes of keys and values."""

    def stored(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """What is stored of keys and values ``[num_tokens, num_kv_heads, head_size]``. Unless overridden: themselves."""
        return key, value

    @override
    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, kv_cache: Tensor, attn_metadata: FlashAttentionMetadata
    ) -> Tensor:
        key, value = self.stored(key, value)
        return super().forward(query, key, value, kv_cache=kv_cache, attn_metadata=attn_metadata)

    @override
    def forward_rotary(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        rotary: Rotary,
        kv_cache: Tensor,
        attn_metadata: FlashAttentionMetadata,
    ) -> Tensor:
        query, key = apply_rotary(query, rotary), apply_rotary(key, rotary)
        return self.forward(query, key, value, kv_cache=kv_cache, attn_metadata=attn_metadata)


class RoundTripImpl(StoringImpl):
    """Stores what a quantised cache would decode to.

    Attributes:
        codec: of that cache.
        seen: keys, values, and what was stored of them, for each batch.
    """

    def __init__(self, layer: AttentionLayerConfig) -> None:
        super().__init__(layer)
        self.codec: SlotCodec | None = None
        self.seen: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []

    @override
    def stored(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if self.codec is None:
            raise RuntimeError("the layer was not made by round_trip")
        keys, values = self.codec.decode(self.codec.encode(key, value), key.dtype)
        self.seen.append((key, value, keys, values))
        return keys, values


ROUND_TRIP = BackendAdapter("round_trip", FlashAttentionMetadataBuilder, RoundTripImpl)


def round_trip(model: TransformersModel, mode: KVQuantMode) -> list[RoundTripImpl]:
    """Give every attention layer a float cache of what a quantised one would decode to; returns the implementations."""
    made: dict[int, Placed] = {}
    impls: list[RoundTripImpl] = []
    for index, (layer, placed) in attention_of(model).items():
        mine = ROUND_TRIP.layer(layer.name, heads_of(layer))
        if not isinstance(mine.impl, RoundTripImpl):
            raise TypeError(f"the adapter made a {type(mine.impl).__name__}")
        mine.impl.codec = make_codec(mode, heads_of(layer).head_size)
        impls.append(mine.impl)
        made[index] = mine, PlacedLayer(mine, placed.kv_cache_spec)
    put_layers(model, made)
    return impls
