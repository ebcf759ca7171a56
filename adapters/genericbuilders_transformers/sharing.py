"""Layers of a transformers model that read an earlier layer's cache, and that run for fewer tokens (Gemma 3n).

The model's file stays as it is; the modules of one loaded model are wrapped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from genericbuilders.adapter import AnyAttentionLayer, AttentionLayer, SharingLayer
from genericbuilders.backends.fast_prefill import FAST_PREFILL
from genericbuilders.backends.flash_attn import FLASH_ATTN, FlashAttentionMetadata
from genericbuilders.config import AttentionLayerConfig
from genericbuilders.model import LoadError, PlacedLayer
from genericbuilders_transformers.attention import LayerCalls
from genericbuilders_transformers.layers import layer_configs

__all__ = ["SHARING_FAMILIES", "shared_caches", "sharing_layers", "skip_tokens"]

SHARING_FAMILIES: Mapping[str, str] = {"gemma3n_text": "model.layers"}
"""Where the decoder layers are, by the model type that ``config.json`` names."""


def shared_caches(config: PretrainedConfig) -> Mapping[int, int]:
    """For each layer that shares a cache, the layer that stores it: the last of its own type that has one.

    Raises:
        LoadError: the family is not one whose layers are known to share, or no layer of the type stores.
    """
    shared: int = getattr(config, "num_kv_shared_layers", None) or 0
    if not shared:
        return {}
    if config.model_type not in SHARING_FAMILIES:
        raise LoadError(
            f"its last {shared} layers share the caches of others, which is served for "
            f"{', '.join(SHARING_FAMILIES)}, not for {config.model_type}"
        )
    kinds: Sequence[str] = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    first = len(kinds) - shared
    last = {kind: index for index, kind in enumerate(kinds[: max(first, 0)])}
    for index, kind in enumerate(kinds):
        if kind not in last:
            raise LoadError(
                f"layer {index} is of type {kind!r} and shares a cache, but none of the first {max(first, 0)} layers, "
                "which store, is of that type"
            )
    return {index: last[kinds[index]] for index in range(first, len(kinds))}


def sharing_layers(
    hf: PreTrainedModel,
    shared: Mapping[int, int],
    stored: Mapping[int, tuple[AnyAttentionLayer, PlacedLayer]],
    flash: Mapping[int, AttentionLayer[FlashAttentionMetadata]],
    heads: AttentionLayerConfig,
    *,
    fast_prefill: bool,
) -> Mapping[int, tuple[SharingLayer[FlashAttentionMetadata], PlacedLayer]]:
    """The layers that share caches, by their place in the model: for reading their metadata, and for the engine.

    Args:
        hf: the model.
        shared: what `shared_caches` gave.
        stored: the layers that store.
        flash: those of `FLASH_ATTN`, at their type.
        heads: what all are made of.
        fast_prefill: let them skip the tokens whose logits are not wanted.

    Raises:
        LoadError: a layer that stores runs on a back end whose caches are not shared here.
    """
    adapter = FAST_PREFILL if fast_prefill else FLASH_ATTN
    found: dict[int, tuple[SharingLayer[FlashAttentionMetadata], PlacedLayer]] = {}
    for index, (name, config) in layer_configs(hf, shared, heads).items():
        storing, placed = stored[shared[index]]
        target = flash.get(shared[index])
        if target is None or target is not storing:
            raise LoadError(
                f"layer {name!r} shares the cache of layer {storing.name!r}, which is one of {storing.adapter.name!r}; "
                f"served are those of {FLASH_ATTN.name!r}"
            )
        layer = adapter.sharing_layer(name, config, target)
        found[index] = layer, PlacedLayer(layer, placed.kv_cache_spec)
    return found


def skip_tokens(hf: PreTrainedModel, shared: Mapping[int, int]) -> None:
    """Let the decoder layers at ``shared``, the model's last, run for the tokens that `LayerCalls.kept` names."""
    layers = hf.get_submodule(SHARING_FAMILIES[hf.config.model_type])
    for index in shared:
        name = str(index)
        layers.register_module(name, _SkippingLayer(layers.get_submodule(name), first=index == min(shared)))


class _SkippingLayer(nn.Module):
    """One decoder layer; called as transformers calls its own.

    All but the first are given the few tokens of the layer before, but rotations and per-layer inputs of all tokens.
    """

    def __init__(self, layer: nn.Module, *, first: bool) -> None:
        super().__init__()
        self.layer = layer
        self.first = first

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        per_layer_input: Tensor,
        *,
        layer_calls: LayerCalls,
        **kwargs: object,
    ) -> Tensor:
        """The layer's output, ``[num_altup_inputs, 1, num_kept, hidden_size]``."""
        kept = layer_calls.kept
        if kept is not None:
            cos, sin = position_embeddings
            position_embeddings = cos.index_select(-2, kept), sin.index_select(-2, kept)
            per_layer_input = per_layer_input.index_select(-2, kept)
            if self.first:
                hidden_states = hidden_states.index_select(-2, kept)
            if not len(kept):
                return hidden_states
        out: Tensor = self.layer(hidden_states, position_embeddings, per_layer_input, layer_calls=layer_calls, **kwargs)
        return out
