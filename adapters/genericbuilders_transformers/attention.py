"""The attention function that transformers calls in place of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor
from transformers import AttentionInterface

from genericbuilders.adapter import AnyAttentionLayer, SharingLayer
from genericbuilders.backends.flash_attn import FlashAttentionMetadata
from genericbuilders.model import ForwardContext

__all__ = ["ATTENTION_NAME", "LayerCalls", "register_attention"]

ATTENTION_NAME = "genericbuilders"


class _AttentionModule(Protocol):
    layer_idx: int


@dataclass(frozen=True)
class LayerCalls:
    """One step, as it travels through a model's keyword arguments to each of its attention modules.

    Attributes:
        layers: the model's attention layers by their place among all layers.
        context: this batch's metadata and caches.
        sharing: those that read the cache of another layer, likewise.
        kept: ``[num_logits]`` int64: the tokens that layers which share caches run for; ``None`` for all.
    """

    layers: Mapping[int, AnyAttentionLayer]
    context: ForwardContext
    sharing: Mapping[int, SharingLayer[FlashAttentionMetadata]] = field(
        default_factory=dict[int, SharingLayer[FlashAttentionMetadata]]
    )
    kept: Tensor | None = None


def register_attention() -> None:
    """Make the name `ATTENTION_NAME` known to transformers; again does no harm.

    No mask function is registered: transformers then makes no mask at all, and what a token sees is in the metadata.
    """
    AttentionInterface.register(ATTENTION_NAME, _paged_attention)


def _paged_attention(
    module: _AttentionModule,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layer_calls: LayerCalls,
    **kwargs: object,
) -> tuple[Tensor, None]:
    """Attend over the paged cache.

    Args:
        module: transformers' attention module; its index finds our layer.
        query: ``[1, num_heads, num_tokens, head_size]``.
        key: ``[1, num_kv_heads, num_tokens, head_size]``; not looked at where the layer reads another's cache.
        value: likewise.
        attention_mask: none; the metadata knows what each token sees.
        layer_calls: the step.
        **kwargs: what transformers passes besides; the layer's own settings were read when it was loaded.

    Returns:
        ``[1, num_tokens, num_heads, head_size]``, and no weights.
    """
    context, reader = layer_calls.context, layer_calls.sharing.get(module.layer_idx)
    if reader is not None:
        read = reader.impl.read(
            query[0].transpose(0, 1), kv_cache=context.kv_caches[reader], attn_metadata=context.step[reader]
        )
        return read[None], None
    out = layer_calls.layers[module.layer_idx].attend(
        query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1), context.step, context.kv_caches
    )
    return out[None], None
